//! Schedules against a clock that is walked second by second.

use super::*;
use jiff::civil::DateTime;
use jiff::tz::AmbiguousOffset;
use proptest::prelude::*;

fn cron(text: &str) -> When {
    When::Cron(text.parse().expect("is an expression"))
}

fn at(text: &str) -> Time {
    let stamp: Timestamp = text.parse().expect("is a time");
    Time::from_nanos(u64::try_from(stamp.as_nanosecond()).expect("after 1970"))
}

fn shown(time: Option<Time>, zone: &Zone) -> String {
    let second = i64::try_from(time.expect("there is one").as_millis() / 1_000).expect("small");
    let stamp = Timestamp::from_second(second).expect("is a time");
    stamp.to_zoned(zone.rules.clone()).strftime("%Y-%m-%d %H:%M:%S %z").to_string()
}

/// So many slots after a time, as the zone's clock shows them.
fn slots(when: &When, zone: &Zone, after: &str, count: usize) -> Vec<String> {
    let first = next_after(when, zone, at(after));
    let all = std::iter::successors(first, |slot| next_after(when, zone, *slot));
    all.take(count).map(|slot| shown(Some(slot), zone)).collect()
}

fn berlin() -> Zone {
    Zone::named("Europe/Berlin").expect("tests run where there are zones")
}

#[test]
fn fields_mean_what_they_mean_everywhere() {
    let utc = Zone::utc();
    let first = |text: &str, after: &str| {
        shown(next_after(&cron(text), &utc, at(after)), &utc).replace(" +0000", "")
    };
    let day = "2026-03-04T05:06:07.5Z";
    assert_eq!(first("* * * * *", day), "2026-03-04 05:07:00");
    assert_eq!(first("* * * * * *", day), "2026-03-04 05:06:08");
    assert_eq!(first("10/20 * * * * ?", day), "2026-03-04 05:06:10");
    assert_eq!(first("*/15 * * * *", day), "2026-03-04 05:15:00");
    assert_eq!(first("5,1-3 5 * * *", day), "2026-03-05 05:01:00");
    assert_eq!(first("0 22 * * MON-FRI", day), "2026-03-04 22:00:00");
    assert_eq!(first("0 0 * * 7", day), "2026-03-08 00:00:00");
    assert_eq!(first("0 0 * * sun", day), "2026-03-08 00:00:00");
    assert_eq!(first("0 0 * * sat-sun", "2026-03-07T12:00:00Z"), "2026-03-08 00:00:00");
    assert_eq!(first("0 0 29 feb *", day), "2028-02-29 00:00:00");
    assert_eq!(first("0 0 31 * *", "2026-03-31T00:00:00Z"), "2026-05-31 00:00:00");
    assert_eq!(first("0 0 13 * fri", day), "2026-03-06 00:00:00", "either day fits");
    assert_eq!(first("0 0 */2 * fri", day), "2026-03-13 00:00:00", "both days have to fit");
    assert_eq!(first("@hourly", day), "2026-03-04 06:00:00");
    assert_eq!(first("@daily", day), "2026-03-05 00:00:00");
    assert_eq!(first("@weekly", day), "2026-03-08 00:00:00");
    assert_eq!(first("@monthly", day), "2026-04-01 00:00:00");
    assert_eq!(first("@Yearly", day), "2027-01-01 00:00:00");
    assert_eq!(first("0 0 29 2 *", "2096-03-01T00:00:00Z"), "2104-02-29 00:00:00");
}

#[test]
fn a_bad_expression_is_told_its_field_its_value_and_what_would_be_right() {
    let told = |text: &str| text.parse::<CronExpression>().unwrap_err();
    assert_eq!(
        told("0 24 * * *").to_string(),
        "cron: hour is \"24\"; use *, numbers from 0 to 23, rising ranges like 1-5, steps like \
         */2, or a list of them with commas"
    );
    let fields = [
        ("60 * * * * *", "second", "60"),
        ("61 * * * *", "minute", "61"),
        ("*/0 * * * *", "minute", "*/0"),
        ("1,,2 * * * *", "minute", ""),
        ("+1 * * * *", "minute", "+1"),
        ("-1 * * * *", "minute", "-1"),
        ("? * * * *", "minute", "?"),
        ("5-1 * * * *", "minute", "5-1"),
        ("1-2-3 * * * *", "minute", "1-2-3"),
        ("1/2/3 * * * *", "minute", "1/2/3"),
        ("0 0 L * *", "day of month", "l"),
        ("0 0 0 * *", "day of month", "0"),
        ("0 0 * 13 *", "month", "13"),
        ("0 0 * january *", "month", "january"),
        ("0 0 * * 8", "day of week", "8"),
        ("0 0 * * mon#2", "day of week", "mon#2"),
        ("0 0 30 2 *", "day of month and month", "30 2"),
        ("0 0 31 4,6,9,11 *", "day of month and month", "31 4,6,9,11"),
        ("", "expression", ""),
        ("* * * *", "expression", "* * * *"),
        ("* * * * * * *", "expression", "* * * * * * *"),
        ("@reboot", "expression", "@reboot"),
    ];
    for (text, field, value) in fields {
        let error = told(text);
        assert_eq!((error.field, error.value.as_str()), (field, value), "{text}");
    }
    assert!(told(&"1,".repeat(2_000)).wanted.contains("1024 bytes"));
    assert!("0 0 31 4 1".parse::<CronExpression>().is_ok(), "every Monday of April fits");
}

#[test]
fn a_named_hour_that_the_clock_skips_is_made_up_for_once_when_it_has_jumped() {
    // At 02:00 on the 29th of March the clock shows 03:00.
    let zone = berlin();
    let daily = slots(&cron("30 2 * * *"), &zone, "2026-03-27T12:00:00Z", 3);
    assert_eq!(
        daily,
        ["2026-03-28 02:30:00 +0100", "2026-03-29 03:00:00 +0200", "2026-03-30 02:30:00 +0200"]
    );
    let often = slots(&cron("*/20 2,3 * * *"), &zone, "2026-03-29T00:00:00Z", 4);
    assert_eq!(
        often,
        [
            "2026-03-29 03:00:00 +0200",
            "2026-03-29 03:20:00 +0200",
            "2026-03-29 03:40:00 +0200",
            "2026-03-30 02:00:00 +0200"
        ]
    );
}

#[test]
fn a_named_hour_that_the_clock_shows_twice_counts_the_first_time() {
    // At 03:00 on the 25th of October the clock shows 02:00 again.
    let zone = berlin();
    let daily = slots(&cron("30 2 * * *"), &zone, "2026-10-24T12:00:00Z", 2);
    assert_eq!(daily, ["2026-10-25 02:30:00 +0200", "2026-10-26 02:30:00 +0100"]);
    let again = next_after(&cron("30 2 * * *"), &zone, at("2026-10-25T01:10:00Z"));
    assert_eq!(shown(again, &zone), "2026-10-26 02:30:00 +0100", "asked in between");
}

#[test]
fn what_fits_every_hour_goes_by_the_time_that_passes() {
    let zone = berlin();
    let spring = slots(&cron("5 * * * *"), &zone, "2026-03-29T00:00:00Z", 3);
    assert_eq!(
        spring,
        ["2026-03-29 01:05:00 +0100", "2026-03-29 03:05:00 +0200", "2026-03-29 04:05:00 +0200"]
    );
    let autumn = slots(&cron("5 * * * *"), &zone, "2026-10-25T00:00:00Z", 3);
    assert_eq!(
        autumn,
        ["2026-10-25 02:05:00 +0200", "2026-10-25 02:05:00 +0100", "2026-10-25 03:05:00 +0100"]
    );
}

#[test]
fn a_zone_that_is_not_known_is_named() {
    let error = Zone::named("Europe/Atlantis").unwrap_err();
    assert!(error.to_string().contains("\"Europe/Atlantis\""), "{error}");
    assert!(Zone::named("Etc/Unknown").is_err());
    assert!(Zone::named("").is_err());
    assert!(Zone::named("../../etc/passwd").is_err());
    assert_eq!(Zone::named("utc").expect("always").name(), "UTC");
    assert_eq!(Zone::named("america/new_york").expect("is known").name(), "America/New_York");
}

#[test]
fn every_so_many_seconds_begins_at_its_anchor() {
    let (zone, second) = (Zone::utc(), Time::from_millis);
    let when = When::every(10, second(5_000)).expect("fits");
    assert_eq!(next_after(&when, &zone, Time::ZERO), Some(second(5_000)));
    assert_eq!(next_after(&when, &zone, second(5_000)), Some(second(15_000)));
    assert_eq!(next_after(&when, &zone, second(14_999)), Some(second(15_000)));
    let odd = When::every(1, Time::from_nanos(1_999)).expect("fits");
    assert_eq!(next_after(&odd, &zone, Time::ZERO), Some(Time::from_nanos(1_000)), "microseconds");
    assert_eq!(next_after(&when, &zone, Time::from_nanos(u64::MAX)), None);
    assert_eq!(When::every(0, Time::ZERO), Err(EveryError { seconds: 0 }));
    assert!(When::every(EVERY_SECONDS_MAX + 1, Time::ZERO).is_err());
}

#[test]
fn json_tells_cron_and_every_apart_and_refuses_what_cannot_be() {
    let read = |text: &str| serde_json::from_str::<When>(text);
    let daily = read(r#"{"cron":"0 6 * * mon-fri"}"#).expect("reads");
    assert_eq!(daily, cron("0 6 * * mon-fri"));
    let every = read(r#"{"every":{"seconds":90,"anchor":7}}"#).expect("reads");
    assert_eq!(every, When::Every { seconds: 90, anchor: Time::from_nanos(7_000) });
    for when in [daily, every] {
        let text = serde_json::to_string(&when).expect("writes");
        assert_eq!(read(&text).expect("reads"), when);
    }
    let error = read(r#"{"every":{"seconds":0}}"#).unwrap_err().to_string();
    assert!(error.contains("use a number from 1"), "{error}");
    assert!(read(r#"{"cron":"0 25 * * *"}"#).unwrap_err().to_string().contains("hour"));
}

#[test]
fn only_the_latest_missed_slot_fires_or_none_or_all_up_to_a_thousand() {
    let zone = Zone::utc();
    let minutely = cron("* * * * *");
    let (first, now) = (at("2026-01-01T00:00:00Z"), at("2026-01-01T02:00:30Z"));
    let fire = |catch_up| due(&minutely, &zone, catch_up, first, now);
    let next_at = Some(at("2026-01-01T02:01:00Z"));
    let latest = at("2026-01-01T02:00:00Z");
    assert_eq!(fire(CatchUp::Latest), Fire { slots: vec![latest], next_at });
    assert_eq!(fire(CatchUp::Skip), Fire { slots: vec![latest], next_at }, "it is not missed");
    let all = fire(CatchUp::All);
    assert_eq!((all.slots.len(), all.slots[0], all.slots[120]), (121, first, latest));
    let yearly = due(&cron("@yearly"), &zone, CatchUp::Skip, first, now);
    assert_eq!(yearly, Fire { slots: vec![], next_at: Some(at("2027-01-01T00:00:00Z")) });
    let early = due(&minutely, &zone, CatchUp::All, now + Duration::from_nanos(1), now);
    assert_eq!(early.slots, [], "nothing is due");
    assert_eq!(early.moves(now + Duration::from_nanos(1)), []);
}

#[test]
fn years_of_missed_seconds_are_not_walked() {
    let (zone, first) = (berlin(), at("2000-01-01T00:00:00Z"));
    let now = at("2026-06-01T12:00:00.25Z");
    for when in [cron("* * * * * *"), When::every(1, first).expect("fits")] {
        let fire = due(&when, &zone, CatchUp::All, first, now);
        assert_eq!(fire.slots.len(), CATCH_UP_MAX);
        assert_eq!(fire.slots[CATCH_UP_MAX - 1], at("2026-06-01T12:00:00Z"));
        assert_eq!(fire.slots[0], at("2026-06-01T11:43:21Z"));
        assert_eq!(fire.next_at, Some(at("2026-06-01T12:00:01Z")));
        let moves = fire.moves(first);
        assert_eq!(moves[0], Move::Pass { was: first, next: Some(fire.slots[0]) });
        assert_eq!(moves.len(), CATCH_UP_MAX + 1);
    }
}

#[test]
fn moves_are_a_chain_from_what_was_read_to_what_comes_next() {
    let second = Time::from_millis;
    let fire = Fire { slots: vec![second(2), second(3)], next_at: None };
    let chain = [
        Move::Pass { was: second(1), next: Some(second(2)) },
        Move::Push { was: second(2), next: Some(second(3)) },
        Move::Push { was: second(3), next: None },
    ];
    assert_eq!(fire.moves(second(1)), chain);
    assert_eq!(fire.moves(second(2)), chain[1..]);
    let none = Fire { slots: vec![], next_at: Some(second(9)) };
    assert_eq!(none.moves(second(1)), [Move::Pass { was: second(1), next: Some(second(9)) }]);
}

/// Whether the fields of an expression fit, from its text: lists of plain numbers only.
fn fits(text: &str, shown: DateTime) -> bool {
    let day = i32::from(shown.weekday().to_sunday_zero_offset());
    let now = [
        i32::from(shown.second()),
        i32::from(shown.minute()),
        i32::from(shown.hour()),
        i32::from(shown.day()),
        i32::from(shown.month()),
        day,
    ];
    let fields: Vec<&str> = text.split(' ').collect();
    let fit = |place: usize| {
        let field = fields[place];
        field == "*" || field.split(',').any(|one| one.parse::<i32>().unwrap() == now[place])
    };
    let days = match (fields[3] == "*", fields[5] == "*") {
        (false, false) => fit(3) || fit(5),
        _ => fit(3) && fit(5),
    };
    fit(0) && fit(1) && fit(2) && fit(4) && days
}

/// Whether an instant is a slot, by asking the zone about readings instead of stretches.
fn is_slot(text: &str, zone: &Zone, second: i64) -> bool {
    let stamp = Timestamp::from_second(second).unwrap();
    let reading = zone.rules.to_datetime(stamp);
    let every_hour = text.split(' ').nth(2) == Some("*");
    if fits(text, reading) {
        let first = zone.rules.to_ambiguous_timestamp(reading).earlier().unwrap();
        return every_hour || first == stamp;
    }
    let before = zone.rules.to_offset(Timestamp::from_second(second - 1).unwrap());
    let skipped = i64::from(zone.rules.to_offset(stamp).seconds() - before.seconds());
    !every_hour
        && (0..skipped).any(|later| {
            let local = second + i64::from(before.seconds()) + later;
            let local = jiff::tz::Offset::UTC.to_datetime(Timestamp::from_second(local).unwrap());
            let kind = zone.rules.to_ambiguous_timestamp(local).offset();
            assert!(matches!(kind, AmbiguousOffset::Gap { .. }), "{local} is skipped");
            fits(text, local)
        })
}

/// Any number, `any` to two, or a list of some.
fn list(any: u32, least: u8, greatest: u8) -> impl Strategy<Value = String> {
    let numbers = proptest::collection::vec(least..=greatest, 1..4);
    let numbers =
        numbers.prop_map(|all| all.iter().map(u8::to_string).collect::<Vec<_>>().join(","));
    prop_oneof![any => Just("*".to_owned()), 2 => numbers]
}

/// Midnights and changes of the clock, in zones that differ in when and how much.
fn moments() -> impl Strategy<Value = (&'static str, &'static str)> {
    prop_oneof![
        Just(("UTC", "2026-12-31T23:00:00Z")),
        Just(("Europe/Berlin", "2026-03-28T23:30:00Z")),
        Just(("Europe/Berlin", "2026-10-24T23:30:00Z")),
        Just(("America/New_York", "2027-03-14T05:00:00Z")),
        Just(("America/New_York", "2027-11-07T04:00:00Z")),
        Just(("Australia/Lord_Howe", "2026-04-04T13:00:00Z")),
        Just(("Australia/Lord_Howe", "2026-10-03T14:00:00Z")),
        Just(("Asia/Kathmandu", "2028-02-28T17:00:00Z")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn the_next_slot_fits_and_nothing_between_does(
        (second, minute, hour) in (list(1, 0, 59), list(1, 0, 59), list(1, 0, 4)),
        (day, month, weekday) in (list(12, 1, 31), list(12, 1, 12), list(12, 0, 6)),
        (zone, start) in moments(),
        shift in 0_u64..14_000,
    ) {
        let text = format!("{second} {minute} {hour} {day} {month} {weekday}");
        // One that never comes is refused.
        let parsed = text.parse::<CronExpression>();
        prop_assume!(parsed.is_ok());
        let (when, zone) = (When::Cron(parsed.unwrap()), Zone::named(zone).unwrap());
        let from = at(start) + Duration::from_secs(shift);
        let base = i64::try_from(from.as_millis() / 1_000).unwrap();
        let last = base + 5 * 3_600;
        let found = next_after(&when, &zone, from);
        prop_assert!(found.is_some_and(|found| found > from));
        let found = found.and_then(|found| i64::try_from(found.as_millis() / 1_000).ok()).unwrap();
        let expected = (base + 1..=last).find(|second| is_slot(&text, &zone, *second));
        match expected {
            Some(expected) => prop_assert_eq!(found, expected, "{}", text),
            None => prop_assert!(found > last && is_slot(&text, &zone, found), "{text}: {found}"),
        }
    }

    #[test]
    fn firing_misses_nothing_and_doubles_nothing_however_looks_fall(
        looks in proptest::collection::vec(1_u64..400, 1..20),
        text in prop_oneof![Just("*/2 * * * *"), Just("0 1-3 * * *"), Just("7 * * * *")],
    ) {
        let (when, zone) = (cron(text), berlin());
        let start = at("2026-10-24T22:00:00Z");
        let mut next_at = next_after(&when, &zone, start);
        let (mut now, mut fired) = (start, Vec::new());
        for minutes in looks {
            now = now + Duration::from_secs(minutes * 60);
            let fire = due(&when, &zone, CatchUp::All, next_at.unwrap(), now);
            for step in fire.moves(next_at.unwrap()) {
                let Move::Push { was, next } = step else { panic!("nothing is passed over") };
                prop_assert_eq!(Some(was), next_at);
                fired.push(was);
                next_at = next;
            }
        }
        let walk = std::iter::successors(next_after(&when, &zone, start), |slot| {
            next_after(&when, &zone, *slot)
        });
        let expected: Vec<Time> = walk.take_while(|slot| *slot <= now).collect();
        prop_assert_eq!(fired, expected);
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[-*/,0-9a-zA-Z@? ]{0,40}") {
        let _ = text.parse::<CronExpression>();
    }
}
