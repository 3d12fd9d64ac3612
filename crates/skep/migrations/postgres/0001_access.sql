-- Who may do what, and who did what. Times are milliseconds since 1970.
CREATE TABLE skep_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    -- SHA-256 of the secret, in hexadecimal. The secret itself is random enough not to need more.
    hash TEXT NOT NULL,
    -- Separated by commas.
    scopes TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    expires_at BIGINT,
    revoked_at BIGINT,
    last_used_at BIGINT
);

CREATE TABLE skep_audit (
    id BIGINT PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
    at BIGINT NOT NULL,
    actor TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL
);

-- What all nodes of the installation must know and nobody else: the key that signs login cookies.
CREATE TABLE skep_secrets (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
);
