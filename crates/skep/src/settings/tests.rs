//! Layers, problems and provenance.

use super::*;
use skep_testkit::Folder;

fn environment(pairs: &[(&str, &str)]) -> Layers {
    let mut layers = Layers::default();
    let variables = pairs.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
    layers.add_environment(variables, &Settings::keys());
    layers
}

fn problems_of_file(text: &str) -> Vec<String> {
    let folder = Folder::new("settings");
    let path = folder.join("skep.toml");
    std::fs::write(&path, text).expect("writes");
    let Err(Invalid(problems)) = check_file(&path) else { return Vec::new() };
    let prefix = format!("{}:", path.display());
    problems.iter().map(|problem| problem.to_string().replace(&prefix, "line ")).collect()
}

fn origin_of(loaded: &Loaded, key: &str) -> (String, String) {
    let one = loaded.settings.effective.iter().find(|one| one.key == key).expect(key);
    (one.value.clone(), one.origin.clone())
}

#[test]
fn each_layer_goes_over_the_one_before_and_is_named() {
    let folder = Folder::new("settings");
    let path = folder.join("skep.toml");
    let text = "[store.sqlite]\nreaders = 3\nqueue_max = 33\nbatch_max = 333\n";
    std::fs::write(&path, text).expect("writes");
    let known = Settings::keys();
    let mut layers = Layers::default();
    layers.add_file(&path, &known);
    let variables =
        [("SKEP_STORE__SQLITE__QUEUE_MAX", "44"), ("SKEP_STORE__SQLITE__BATCH_MAX", "444")];
    let variables = variables.map(|(name, text)| (name.to_owned(), text.to_owned()));
    layers.add_environment(variables.into_iter(), &known);
    layers.add_set("store.sqlite.batch_max=555", &known);
    let loaded = resolve(layers).expect("is valid");
    let at = |line| format!("{}:{line}", path.display());
    assert_eq!(origin_of(&loaded, "store.sqlite.readers"), ("3".to_owned(), at(2)));
    assert_eq!(
        origin_of(&loaded, "store.sqlite.queue_max"),
        ("44".to_owned(), "environment SKEP_STORE__SQLITE__QUEUE_MAX".to_owned())
    );
    assert_eq!(
        origin_of(&loaded, "store.sqlite.batch_max"),
        ("555".to_owned(), "flag --set".to_owned())
    );
    assert_eq!(origin_of(&loaded, "log.level"), ("info".to_owned(), "default".to_owned()));
    assert_eq!(loaded.settings.sqlite.batch_max, 555);
}

#[test]
fn every_problem_is_told_at_once_with_its_line_and_what_would_be_right() {
    let problems = problems_of_file(
        "databse = \"embedded\"\n\
         log = 5\n\
         [store.sqlite]\n\
         readers = 0\n\
         queue_max = [1, 2]\n\
         [store.redis]\n\
         call_timeout = \"30\"\n\
         [api]\n\
         listen = \"everywhere\"\n",
    );
    assert_eq!(
        problems,
        [
            "line 1: unknown setting `databse`; did you mean `database`?",
            "line 2: `log` is a section, write `[log]`",
            "line 9: `api.listen` cannot be \"everywhere\", it must be an address and port such as \
             127.0.0.1:6632, [::1]:6632 or 0.0.0.0:6632",
            "line 4: `store.sqlite.readers` cannot be \"0\", it must be a whole number, from 1 to \
             64",
            "line 5: `store.sqlite.queue_max` cannot be \"1,2\", it must be a whole number, from 1 \
             to 1000000",
            "line 7: `store.redis.call_timeout` cannot be \"30\" (it has no unit), it must be a \
             duration such as 250ms, 30s, 5m or 1h30m, from 10ms to 1h",
        ]
    );
}

#[test]
fn bad_toml_is_told_with_its_line() {
    let problems = problems_of_file("[api]\nlisten = \n[log\n");
    assert!(problems.iter().any(|problem| problem.starts_with("line 2: ")), "{problems:?}");
    assert!(problems.iter().any(|problem| problem.starts_with("line 3: ")), "{problems:?}");
}

#[test]
fn values_that_contradict_each_other_are_refused() {
    let problems = problems_of_file("[store.retry]\nbase = \"10s\"\n");
    assert_eq!(
        problems,
        ["line 2: `store.retry.base` (10s) must not be above `store.retry.cap` (5s)"]
    );
}

#[test]
fn a_wrong_address_is_refused_without_showing_its_password() {
    for text in ["database = \"postgres://u:hunter2@h:x/d\"", "coordination = \"rediss//:hunter2\""]
    {
        let problems = problems_of_file(text).join("\n");
        assert!(problems.contains("it must be"), "{problems}");
        assert!(!problems.contains("hunter2"), "{problems}");
    }
}

#[test]
fn an_unknown_environment_name_is_refused_but_not_those_kubernetes_sets() {
    let Err(Invalid(problems)) = resolve(environment(&[("SKEP_STORE__SQLITE__READER", "3")]))
    else {
        panic!("it is unknown")
    };
    assert_eq!(
        problems[0].to_string(),
        "environment SKEP_STORE__SQLITE__READER: unknown setting `store.sqlite.reader`; did you \
         mean `store.sqlite.readers`?"
    );
    let links = [
        ("SKEP_PORT", "tcp://10.0.0.1:6632"),
        ("SKEP_PORT_6632_TCP_ADDR", "10.0.0.1"),
        ("SKEP_SERVICE_HOST", "10.0.0.1"),
        ("SKEP_API_KEY", "secret"),
        ("UNRELATED", "x"),
    ];
    resolve(environment(&links)).expect("none of them is a setting");
}

#[test]
fn an_alias_works_and_the_canonical_name_wins_with_a_warning() {
    let loaded = resolve(environment(&[("LOG_LEVEL", "DEBUG")])).expect("is valid");
    assert_eq!(
        origin_of(&loaded, "log.level"),
        ("debug".to_owned(), "environment LOG_LEVEL".to_owned())
    );
    let loaded = resolve(environment(&[("LOG_LEVEL", "WARNING"), ("LOG_FORMAT", "console")]));
    let loaded = loaded.expect("other systems' words are understood");
    assert_eq!(origin_of(&loaded, "log.level").0, "warn");
    let both = [("SKEP_LOG__LEVEL", "warn"), ("LOG_LEVEL", "debug")];
    let loaded = resolve(environment(&both)).expect("is valid");
    assert_eq!(origin_of(&loaded, "log.level").0, "warn");
    assert_eq!(
        loaded.warnings[0].to_string(),
        "environment SKEP_LOG__LEVEL: it wins over LOG_LEVEL, which is set too"
    );
}

#[test]
fn every_alias_names_a_setting_and_a_name_of_its_own() {
    let known = Settings::keys();
    for alias in aliases() {
        assert!(known.contains(&alias.key), "{} sets nothing", alias.name);
        assert!(!alias.name.starts_with("SKEP_"), "{} is no alias", alias.name);
        assert_eq!(aliases().filter(|other| other.name == alias.name).count(), 1, "{}", alias.name);
    }
}

#[test]
fn a_flag_that_sets_nothing_known_is_refused() {
    let known = Settings::keys();
    let mut layers = Layers::default();
    layers.add_set("log.levle=debug", &known);
    layers.add_set("log.level", &known);
    let Err(Invalid(problems)) = resolve(layers) else { panic!("both are wrong") };
    assert!(problems[0].message.contains("did you mean `log.level`?"), "{}", problems[0]);
    assert!(problems[1].message.contains("it takes KEY=VALUE"), "{}", problems[1]);
    let mut layers = Layers::default();
    layers.add_set("postgres://u:hunter2@h/d?x=1", &known);
    layers.add_set("postgres://u:hunter2@h/d", &known);
    let Err(Invalid(problems)) = resolve(layers) else { panic!("both are wrong") };
    assert!(problems.iter().all(|problem| !problem.to_string().contains("hunter2")));
}

#[test]
fn numbers_mean_the_same_in_every_notation() {
    let folder = Folder::new("settings");
    let path = folder.join("skep.toml");
    std::fs::write(&path, "[store.sqlite]\nreaders = 0x10\nqueue_max = 1_000\n").expect("writes");
    let loaded = check_file(&path).expect("is valid");
    assert_eq!((loaded.settings.sqlite.readers, loaded.settings.sqlite.queue_max), (16, 1_000));
}

#[test]
fn the_declared_keys_are_those_that_are_read() {
    let loaded = resolve(Layers::default()).expect("the defaults are valid");
    let read: Vec<&str> = loaded.settings.effective.iter().map(|one| one.key).collect();
    assert_eq!(read, Settings::keys());
    assert!(loaded.settings.effective.iter().all(|one| one.value == one.default));
    assert!(loaded.settings.effective.iter().all(|one| !one.help.is_empty()));
}

#[test]
fn the_defaults_of_the_stores_come_through() {
    let loaded = resolve(Layers::default()).expect("the defaults are valid");
    let options = loaded.settings.store_options();
    let expected = StoreOptions::embedded(Path::new("skep-data"));
    assert_eq!(format!("{options:?}"), format!("{expected:?}"));
}

fn from_environment(pairs: &[(&str, &str)]) -> Result<Loaded, Invalid> {
    resolve(environment(pairs))
}

#[test]
fn the_defaults_of_the_pools_are_the_table_in_the_documentation() {
    let options = resolve(Layers::default()).expect("is valid").settings.pools.options;
    let seen = options.tiers.map(|tier| {
        let rules = tier.rules;
        (rules.min, rules.max, tier.queue, tier.task_timeout.as_secs(), tier.retries)
    });
    assert_eq!(
        seen,
        [(1, 4, 100, 5, 1), (1, 6, 500, 30, 3), (1, 1, 200, 60, 5), (1, 1, 100, 120, 5)]
    );
    let ratios = options.tiers.map(|tier| {
        [tier.rules.up, tier.rules.down, tier.rules.overflow].map(|ratio| ratio.to_string())
    });
    assert_eq!(ratios[0], ["5.0", "2.0", "5.0"]);
    assert_eq!(ratios[1], ratios[0]);
    assert_eq!(ratios[2], ["10.0", "3.0", "5.0"]);
    assert_eq!(ratios[3], ratios[2]);
    assert_eq!(options.tiers.map(|tier| tier.idle_timeout.as_secs()), [30, 30, 60, 60]);
    let shared = options.shared;
    assert_eq!((shared.min, shared.max, shared.steal_above), (0, 12, 10));
    assert_eq!(options.shared_idle_timeout.as_secs(), 30);
}

#[test]
fn every_name_that_worker_pools_have_elsewhere_is_understood() {
    let mut variables = Vec::new();
    for tier in ["CRITICAL", "HIGH", "NORMAL", "LOW"] {
        for (name, value) in [
            ("MIN", "2"),
            ("MAX", "9"),
            ("QUEUE", "77"),
            ("SCALE_UP_RATIO", "8.5"),
            ("SCALE_DOWN_RATIO", "2.5"),
            ("OVERFLOW_RATIO", "6"),
            ("TASK_TIMEOUT", "7s"),
            ("MAX_RETRIES", "4"),
        ] {
            variables.push((format!("WORKER_{tier}_{name}"), value));
        }
    }
    for (name, value) in [
        ("WORKER_SHARED_MIN", "1"),
        ("WORKER_SHARED_MAX", "5"),
        ("WORKER_SHARED_STEAL_THRESHOLD", "3"),
        ("WORKER_IDLE_TIMEOUT", "45s"),
        ("WORKER_LOW_IDLE_TIMEOUT", "90s"),
        ("WORKER_POOLS_ENABLED", "1"),
        ("WORKER_AUTO_CONFIGURE", "1"),
    ] {
        variables.push((name.to_owned(), value));
    }
    let variables: Vec<(&str, &str)> =
        variables.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    let loaded = from_environment(&variables).expect("is valid");
    assert_eq!(loaded.warnings, []);
    let options = loaded.settings.pools.options;
    for tier in options.tiers {
        assert_eq!((tier.rules.min, tier.rules.max, tier.queue, tier.retries), (2, 9, 77, 4));
        assert_eq!((tier.rules.up.thousandths(), tier.rules.down.thousandths()), (8_500, 2_500));
        assert_eq!((tier.rules.overflow.thousandths(), tier.task_timeout.as_secs()), (6_000, 7));
    }
    assert_eq!(options.tiers.map(|tier| tier.idle_timeout.as_secs()), [45, 45, 45, 90]);
    let shared = options.shared;
    assert_eq!((shared.min, shared.max, shared.steal_above), (1, 5, 3));
}

#[test]
fn tasks_per_worker_is_the_older_name_of_the_scale_up_ratio() {
    let older = ("WORKER_HIGH_TASKS_PER_WORKER", "7");
    let loaded = from_environment(&[older]).expect("is valid");
    assert_eq!(loaded.settings.pools.options.tiers[1].rules.up.to_string(), "7.0");
    for both in [
        [older, ("WORKER_HIGH_SCALE_UP_RATIO", "9.0")],
        [("WORKER_HIGH_SCALE_UP_RATIO", "9.0"), older],
    ] {
        let loaded = from_environment(&both).expect("is valid");
        assert_eq!(loaded.settings.pools.options.tiers[1].rules.up.to_string(), "9.0");
        let warning = loaded.warnings[0].to_string();
        assert!(warning.contains("wins over WORKER_HIGH_TASKS_PER_WORKER"), "{warning}");
    }
}

#[test]
fn sizes_follow_the_processors_where_nobody_set_them() {
    let auto = ("WORKER_AUTO_CONFIGURE", "1");
    let cores = std::thread::available_parallelism().expect("known").get();
    let sizes = skep_policy::pools::sizes_for(u16::try_from(cores).expect("small"));
    let loaded = from_environment(&[auto]).expect("is valid");
    let options = &loaded.settings.pools.options;
    assert_eq!(options.tiers[0].rules.max, sizes.critical);
    assert_eq!((options.tiers[1].rules.max, options.shared.max), (sizes.high, sizes.shared));
    let (value, origin) = origin_of(&loaded, "pools.critical.max");
    assert_eq!(value, sizes.critical.to_string());
    assert!(origin.contains("auto_configure"), "{origin}");
    let loaded = from_environment(&[auto, ("WORKER_CRITICAL_MAX", "4")]).expect("is valid");
    assert_eq!(loaded.settings.pools.options.tiers[0].rules.max, 4, "what is set wins");
}

#[test]
fn what_no_pool_can_have_is_named_with_what_it_could() {
    for (name, value, expected) in [
        ("WORKER_CRITICAL_SCALE_UP_RATIO", "NaN", "a decimal number"),
        ("WORKER_CRITICAL_SCALE_UP_RATIO", "-1", "a decimal number"),
        ("WORKER_LOW_MIN", "0", "from 1 to"),
        ("WORKER_HIGH_MIN", "7", "max (6) cannot be below min (7)"),
        ("WORKER_HIGH_SCALE_DOWN_RATIO", "3", "it can be at most 2.0"),
        ("WORKER_HIGH_QUEUE", "5", "the queue (5) must hold from max (6)"),
        ("WORKER_HIGH_TASK_TIMEOUT", "30", "it has no unit"),
        ("WORKER_POOLS_ENABLED", "0", "cannot be false"),
        ("WORKER_BACKGROUND_CPU", "0", "at least 1 processor"),
        ("SKEP_ALERTS__WEBHOOKS", "ftp://x", "http:// or https://"),
        ("SKEP_ALERTS__WEBHOOKS", "https://hooks.example/token", "needs `alerts.secret`"),
        ("SKEP_ALERTS__SECRET", "short", "at least 16 characters"),
    ] {
        let problems = from_environment(&[(name, value)]).expect_err(name).to_string();
        assert!(problems.contains(expected), "{name}={value}: {problems}");
        assert!(!problems.contains("hooks.example/token"), "{problems}");
    }
}
