-- Everything Tallystick knows. Times are database time; ids are random, so that a database restored
-- from a backup never issues one again. States and rules are CHECKs where SQL can say them.

-- The history of a job's errors: the newest are kept, and the first goes when it is full.
CREATE FUNCTION tallystick.with_error(
    errors jsonb, code text, params jsonb, attempt integer, kept integer
) RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT jsonb_agg(entry ORDER BY place)
    FROM jsonb_array_elements(errors || jsonb_build_array(jsonb_build_object(
             'at', to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
             'code', code, 'params', params, 'attempt', attempt)))
         WITH ORDINALITY AS history (entry, place)
    WHERE place > jsonb_array_length(errors) + 1 - kept
$$;

CREATE TABLE tallystick.namespace (
    id         uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    name       text NOT NULL UNIQUE CHECK (name ~ '^[a-z0-9][a-z0-9_-]{0,62}$'),
    enabled    boolean NOT NULL DEFAULT true,
    revision   bigint NOT NULL DEFAULT 1,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

INSERT INTO tallystick.namespace (name) VALUES ('default');

-- Inode numbers are unsigned 64 bit, hence text. They tell a copied volume from the one first used.
CREATE TABLE tallystick.volume (
    storage_id   text PRIMARY KEY CHECK (storage_id ~ '^[0-9a-f]{32}$'),
    root_inode   text NOT NULL,
    marker_inode text NOT NULL,
    used_bytes   bigint NOT NULL DEFAULT 0,
    revision     bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    probed_at    timestamptz NOT NULL DEFAULT clock_timestamp()
);

-- Logical bytes of regular files, one row per directory of a volume; '' is the root itself.
CREATE TABLE tallystick.ledger (
    storage_id text NOT NULL REFERENCES tallystick.volume,
    directory  text NOT NULL,
    bytes      bigint NOT NULL CHECK (bytes >= 0),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (storage_id, directory)
);

CREATE TABLE tallystick.policy (
    namespace_id uuid NOT NULL REFERENCES tallystick.namespace,
    kind         text NOT NULL,
    after_days   integer NOT NULL CHECK (after_days BETWEEN 0 AND 36500),
    enabled      boolean NOT NULL,
    revision     bigint NOT NULL DEFAULT 1,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace_id, kind)
);

CREATE TABLE tallystick.plan (
    id               uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    namespace_id     uuid NOT NULL REFERENCES tallystick.namespace,
    operation        text NOT NULL,
    kind             text,
    storage_id       text NOT NULL REFERENCES tallystick.volume,
    enabled          boolean NOT NULL,
    scope            text NOT NULL DEFAULT 'new' CHECK (scope IN ('new', 'all')),
    interval_seconds integer NOT NULL CHECK (interval_seconds BETWEEN 3600 AND 2592000),
    batch_size       integer NOT NULL CHECK (batch_size BETWEEN 1 AND 100000),
    max_bytes        bigint NOT NULL CHECK (max_bytes BETWEEN 1048576 AND 1099511627776),
    policy_revision  bigint,
    reason           text NOT NULL,
    revision         bigint NOT NULL DEFAULT 1,
    next_run_at      timestamptz,
    created_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at       timestamptz NOT NULL DEFAULT clock_timestamp(),
    CHECK ((operation = 'archive') = (kind IS NOT NULL)),
    CHECK ((operation = 'archive') = (policy_revision IS NOT NULL)),
    CHECK (NOT enabled OR next_run_at IS NOT NULL)
);

CREATE UNIQUE INDEX plan_of_kind ON tallystick.plan (namespace_id, kind) WHERE operation = 'archive';
CREATE UNIQUE INDEX plan_of_scan ON tallystick.plan (storage_id) WHERE operation = 'scan';
CREATE INDEX plan_due ON tallystick.plan (next_run_at) WHERE enabled;

-- One record per job. `input` is fixed when the job is made, `opening` when its first unit begins,
-- `checkpoint` moves with every settled unit. What an operator sees moves `revision`; what fences
-- a holder moves `generation`.
CREATE TABLE tallystick.job (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    operation       text NOT NULL,
    namespace_id    uuid NOT NULL REFERENCES tallystick.namespace,
    kind            text,
    plan_id         uuid REFERENCES tallystick.plan,
    plan_revision   bigint,
    policy_revision bigint,
    storage_id      text REFERENCES tallystick.volume,
    batch_size      integer NOT NULL CHECK (batch_size > 0),
    page_size       integer NOT NULL CHECK (page_size BETWEEN 1 AND batch_size),
    max_bytes       bigint NOT NULL,
    input           jsonb NOT NULL,
    opening         jsonb,
    checkpoint      jsonb,
    state           text NOT NULL DEFAULT 'PENDING'
                    CHECK (state IN ('PENDING', 'RUNNING', 'PAUSED', 'FAILED', 'SUCCEEDED', 'ABANDONED')),
    revision        bigint NOT NULL DEFAULT 1,
    generation      bigint NOT NULL DEFAULT 0,
    owner           uuid,
    due_at          timestamptz NOT NULL DEFAULT clock_timestamp(),
    lease_until     timestamptz,
    attempts        integer NOT NULL DEFAULT 0,
    takeovers       integer NOT NULL DEFAULT 0,
    failures        integer NOT NULL DEFAULT 0,
    batches         integer NOT NULL DEFAULT 0,
    roots           bigint NOT NULL DEFAULT 0,
    bytes           bigint NOT NULL DEFAULT 0,
    reserved        bigint NOT NULL DEFAULT 0 CHECK (reserved >= 0),
    last_sha256     text CHECK (last_sha256 ~ '^[0-9a-f]{64}$'),
    error_code      text,
    error_params    jsonb,
    errors          jsonb NOT NULL DEFAULT '[]',
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    closed_at       timestamptz,
    CHECK ((state IN ('SUCCEEDED', 'ABANDONED')) = (closed_at IS NOT NULL)),
    CHECK ((state = 'RUNNING') = (owner IS NOT NULL)),
    CHECK (state <> 'RUNNING' OR lease_until = due_at),
    CHECK (state <> 'FAILED' OR error_code IS NOT NULL)
);

CREATE INDEX job_due ON tallystick.job (due_at) WHERE state IN ('PENDING', 'RUNNING');
CREATE UNIQUE INDEX job_open ON tallystick.job (plan_id)
    WHERE plan_id IS NOT NULL AND state IN ('PENDING', 'RUNNING', 'PAUSED', 'FAILED');
CREATE INDEX job_owner ON tallystick.job (owner) WHERE owner IS NOT NULL;
CREATE INDEX job_unfinished ON tallystick.job (storage_id) WHERE reserved > 0 OR state = 'PAUSED';
CREATE INDEX job_of_plan ON tallystick.job (plan_id, closed_at DESC, id) WHERE closed_at IS NOT NULL;
CREATE INDEX job_newest ON tallystick.job (namespace_id, created_at DESC, id DESC);
CREATE INDEX job_closed ON tallystick.job (closed_at, id) WHERE closed_at IS NOT NULL;

-- The evidence of every settled unit; its key makes a second settle of one position impossible.
CREATE TABLE tallystick.unit (
    job_id     uuid NOT NULL REFERENCES tallystick.job,
    seq        integer NOT NULL CHECK (seq > 0),
    generation bigint NOT NULL,
    owner      uuid NOT NULL,
    sha256     text CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    bytes      bigint NOT NULL,
    roots      bigint NOT NULL,
    evidence   jsonb NOT NULL,
    settled_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (job_id, seq)
);

-- Events outlive jobs and may be brought in from a volume, so they refer to jobs without a constraint.
CREATE TABLE tallystick.recovery_event (
    id              uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    occurred_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    recorded_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    type            text NOT NULL,
    severity        text NOT NULL CHECK (severity IN ('info', 'warning', 'error')),
    source          text NOT NULL,
    done            boolean NOT NULL,
    actor           text,
    address         text,
    namespace_id    uuid,
    job_id          uuid,
    operation       text,
    checkpoint      jsonb,
    attempt         integer,
    next_attempt_at timestamptz,
    reason_code     text,
    reason_params   jsonb,
    reclaimed       boolean NOT NULL DEFAULT false
);

CREATE INDEX recovery_event_newest ON tallystick.recovery_event (occurred_at DESC, id DESC);
CREATE INDEX recovery_event_of_job ON tallystick.recovery_event (job_id, occurred_at) WHERE job_id IS NOT NULL;

CREATE TABLE tallystick.security_event (
    id           uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    occurred_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    type         text NOT NULL,
    actor        text,
    address      text,
    namespace_id uuid,
    params       jsonb NOT NULL DEFAULT '{}'
);

CREATE INDEX security_event_newest ON tallystick.security_event (occurred_at DESC, id DESC);

CREATE TABLE tallystick.audit_entry (
    id            uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    occurred_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    namespace_id  uuid,
    actor         text NOT NULL,
    action        text NOT NULL,
    subject       text NOT NULL,
    subject_id    text NOT NULL,
    revision_seen bigint,
    reason        text NOT NULL,
    before        jsonb,
    after         jsonb
);

CREATE INDEX audit_entry_newest ON tallystick.audit_entry (occurred_at DESC, id DESC);
CREATE INDEX audit_entry_of_subject ON tallystick.audit_entry (subject, subject_id, occurred_at);

CREATE TABLE tallystick.receipt (
    namespace_id uuid NOT NULL REFERENCES tallystick.namespace,
    path         text NOT NULL,
    key          text NOT NULL,
    body_sha256  text NOT NULL CHECK (body_sha256 ~ '^[0-9a-f]{64}$'),
    status       integer,
    answer       jsonb,
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (namespace_id, path, key)
);

CREATE INDEX receipt_oldest ON tallystick.receipt (created_at);
