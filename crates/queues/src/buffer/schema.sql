-- Pushes that wait for the database, in the order in which they came. Numbers are never given
-- twice, so that whoever remembers one cannot mean another's.
CREATE TABLE entries (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    messages INTEGER NOT NULL,
    size INTEGER NOT NULL,
    body BLOB NOT NULL
) STRICT;
