//! What the examples find when they run, and which of them do not.

/// Pages whose examples make what others use come first, in this order.
pub const FIRST: &[&str] = &[
    "accounts add",
    "servers add",
    "monitors add",
    "polls add",
    "polls import",
    "routes add",
    "queues set",
    "push",
    "schedules add",
];

/// Pages whose examples take away what others use come last.
pub const LAST: &[&str] = &["end", "drain", "undrain", "clear", "seek", "rm"];

/// Examples that are read and not run: what they contain, with a space at their end, and why.
pub const LEFT_OUT: &[(&str, &str)] = &[
    ("skep serve ", "goes on until it is stopped; every page of the documentation runs one"),
    ("skep demo ", "takes minutes or goes on; its own test runs it"),
    ("skep soak ", "takes minutes to hours; its own test runs it"),
    ("skep worker ", "goes on until it is stopped; the tests of sessions run it"),
    ("skep agent", "goes on until it is stopped, or measures servers elsewhere"),
    ("skep bench", "takes long; its own tests run it"),
    ("skep sim", "takes long; its own tests run it"),
    ("skep chaos", "takes long and needs servers; its own tests run it"),
    ("--watch", "goes on until it is stopped, or takes a while"),
    ("--follow", "goes on until it is stopped"),
    ("skep queues tail", "goes on until it is stopped, or until messages come"),
    ("skep pop orders --wait", "waits for what does not come"),
    ("skep top --url", "has two nodes; one is run"),
    ("postgres://", "needs a server; the pages about operating run it"),
    ("skep cluster drain", "ends a node of several; the page about clusters runs it"),
    ("4f1a0c9e55d2b37a", "needs a task that was given up; the tests of pools run it"),
];

/// Examples that ask on a terminal, where there is none here.
pub const ASKING: &[&str] = &[
    "skep queues rm orders",
    "skep queues clear orders",
    "skep messages rm PARTITION_ID TRANSACTION_ID",
    "skep monitors apply ntp-1",
];

/// Addresses and files that examples name, and what they are here.
pub const INSTEAD: &[(&str, &str)] = &[
    ("https://skep.example:6632", "$SKEP_URL"),
    ("http://node-2:6632", "$SKEP_URL"),
    ("/etc/bash_completion.d/", "./"),
    ("/etc/skep.toml", "skep.toml"),
    ("PARTITION_ID", "$PARTITION_ID"),
    ("TRANSACTION_ID", "$TRANSACTION_ID"),
    ("LEASE_ID", "$LEASE_ID"),
    (" ID ID", " $ID $ID2"),
    (" ID", " $ID"),
    ("k3f9a1c05d2e7", "$KEY_ID"),
    ("s-1f2e3d-42", "$SESSION"),
];

/// What the script begins with: programs of others, files, and what no example makes.
pub const PRELUDE: &str = r#"
exec </dev/null
set -o pipefail
generate() { cat generated.jsonl; }
take-snapshot() { cat fleet.json; }
make-report() { echo '{"report": "nightly"}'; }
curl() { echo '{"id": 17}'; }
tail() { echo 'a line'; }
systemctl() { true; }
jq() { cat > /dev/null; }
count=0
leased() {
    count=$((count + 1))
    skep push orders 1 --partition p-$count
    skep pop orders --partition p-$count ${1:+--group $1} --json > popped && lease
}
letter() {
    leased && skep ack --lease=$LEASE_ID --status dlq $PARTITION_ID $TRANSACTION_ID
    skep dlq ls orders --limit 1 --json > letters && ID=$(field id < letters)
}
message() { skep push orders 1 && skep messages ls orders --limit 1 --json > popped && lease; }
lease() {
    PARTITION_ID=$(field partitionId < popped) TRANSACTION_ID=$(field transactionId < popped)
    LEASE_ID=$(field leaseId < popped) || true
}
field() { grep -o "\"$1\": *\"[^\"]*\"" | head -n 1 | cut -d '"' -f 4; }
fail() { echo "@failed $1"; cat said; }
try() { ( eval "$1" ) > said 2>&1 || fail "$place: $1"; }
ready() { eval "$2" > said 2>&1 || fail "$place, made ready for $1: $2"; }

mkdir -p .zfunc .config/fish/completions
echo 'a line' > app.log
echo '{"report": "daily"}' > report.json
echo '{"payload": {"id": 1}}' > orders.jsonl
echo '{"name": "filed", "host": "filed.example", "upstreams": ["127.0.0.1:9"]}' > route.json
echo '{"id": "filed", "address": "127.0.0.1:9", "kind": "tcp", "interval": "1h"}' > endpoint.json
cat > endpoints.jsonl <<'END'
{"id": "shop", "address": "127.0.0.1:9", "kind": "tcp", "interval": "1h"}
{"id": "cart", "address": "127.0.0.1:9", "kind": "tcp", "interval": "1h"}
{"id": "tenant-001/sensor-017", "address": "127.0.0.1:9", "kind": "tcp", "interval": "1h"}
END
cat > fleet.json <<'END'
{"now": 1790000000000, "server": {"id": "ntp-1", "account": "owner", "ip": "192.0.2.17"},
 "monitors": [{"id": "ams-3", "server_status": "active", "global_status": "active",
               "account": "acme", "ip": "198.51.100.7", "healthy": true, "priority": 11,
               "count": 158}]}
END
echo '{"account": {"id": "zoo"}}' > fleet.jsonl
"#;

/// What is made ready before each example of a page; `$1` is the example.
pub const READY: &[(&str, &str)] = &[
    ("keys rm", "skep keys add --name old --scopes read --json > key && KEY_ID=$(field id < key)"),
    ("polls import", "cp endpoints.jsonl generated.jsonl"),
    ("monitors import", "cp fleet.jsonl generated.jsonl"),
    ("monitors status", "skep monitors status testing fra-1"),
    ("import", "echo '{\"payload\": 1}' > orders.jsonl"),
    ("pop", "count=$((count + 1)) && skep push orders 1 --partition p-$count"),
    ("ack", "case $1 in *audit*) leased audit;; *) leased;; esac"),
    ("explain", "skep monitors status active ams-3"),
    ("monitors explain", "skep monitors status active ams-3"),
    ("monitors what-if", "skep monitors set ams-3 --account acme"),
    ("servers show", "skep monitors status active ams-3"),
    ("backup", "test -d skep-data || skep migrate up"),
    ("queues clear", "skep push orders 1"),
    ("queues rm", "skep push orders 1"),
    ("dlq show", "letter"),
    ("dlq retry", "letter && ID2=$ID && letter"),
    ("dlq rm", "letter && ID2=$ID && letter"),
    (
        "dlq redrives",
        "case $1 in *stop*) letter && letter
         skep dlq retry --queue orders --rate 1/s --json > redrive
         ID=$(field id < redrive);; esac",
    ),
    ("messages show", "message"),
    ("messages rm", "message"),
    ("messages retry", "letter"),
    ("traces show", "message"),
    ("groups seek", "skep pop orders --group audit --ack || true"),
    ("groups rm", "skep pop orders --group audit --ack || true"),
    ("routes rm", "skep routes add cart --host cart.example --to 127.0.0.1:9"),
];
