-- The newest changes that were made by hand to each of some policies and plans, newest first.
SELECT asked.subject, asked.subject_id, entry.*
FROM jsonb_to_recordset(%(subjects)s) AS asked (subject text, subject_id text)
CROSS JOIN LATERAL (
    SELECT occurred_at, actor, reason, before, after
    FROM tallystick.audit_entry
    WHERE audit_entry.subject = asked.subject AND audit_entry.subject_id = asked.subject_id
      AND audit_entry.action = 'set'
    ORDER BY occurred_at DESC
    LIMIT %(entries_max)s
) AS entry
ORDER BY entry.occurred_at DESC
