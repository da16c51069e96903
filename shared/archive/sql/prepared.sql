-- Prepared transactions that may bring rows into these tables or their partitions, the oldest first: those that hold
-- a lock there which is stronger than reading and locking rows takes. When such a transaction began is kept nowhere.
-- A lock whose holder has no process belongs to a prepared transaction. Which one, the lock on its own id tells: the
-- virtual transaction is that of the session which prepared it, and another one after the server was restarted.
WITH RECURSIVE relation AS (
    SELECT class.oid, format('%%I.%%I', asked.schema, asked.name) AS label
    FROM unnest(%(schemas)s::text[], %(names)s::text[]) AS asked (schema, name)
    JOIN pg_namespace AS space ON space.nspname = asked.schema
    JOIN pg_class AS class ON class.relnamespace = space.oid AND class.relname = asked.name
    UNION
    SELECT inherits.inhrelid, relation.label
    FROM relation JOIN pg_inherits AS inherits ON inherits.inhparent = relation.oid
)
SELECT prepared.gid AS transaction, prepared.prepared::text AS since, prepared.owner::text AS owner,
       min(relation.label) AS table,
       extract(epoch FROM clock_timestamp() - prepared.prepared)::float8 AS age
FROM pg_prepared_xacts AS prepared
JOIN pg_locks AS own ON own.locktype = 'transactionid' AND own.pid IS NULL
    AND own.transactionid = prepared.transaction
JOIN pg_locks AS held ON held.pid IS NULL AND held.virtualtransaction = own.virtualtransaction
JOIN relation ON relation.oid = held.relation
JOIN pg_database AS here ON here.oid = held.database AND here.datname = current_database()
WHERE held.granted AND held.mode NOT IN ('AccessShareLock', 'RowShareLock')
GROUP BY prepared.gid, prepared.prepared, prepared.owner
ORDER BY prepared.prepared, prepared.gid
