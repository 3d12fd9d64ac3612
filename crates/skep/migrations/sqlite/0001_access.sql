-- Who may do what, and who did what. Times are milliseconds since 1970.
CREATE TABLE skep_keys (
    id TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    -- SHA-256 of the secret, in hexadecimal. The secret itself is random enough not to need more.
    hash TEXT NOT NULL,
    -- Separated by commas.
    scopes TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    expires_at INTEGER,
    revoked_at INTEGER,
    last_used_at INTEGER
) STRICT;

CREATE TABLE skep_audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    address TEXT NOT NULL,
    action TEXT NOT NULL,
    target TEXT NOT NULL,
    detail TEXT NOT NULL
) STRICT;

-- What all nodes of the installation must know and nobody else: the key that signs login cookies.
CREATE TABLE skep_secrets (
    name TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
