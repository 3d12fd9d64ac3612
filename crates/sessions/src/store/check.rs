//! Refuses what no store could do exactly, so that all refuse it.

use skep_policy::sessions::{Ask, GATEWAY_ID_MAX, LIFETIME_MAX, Rules, SLOTS_MAX};

/// Stores write numbers as texts of fourteen digits, or count in floating point.
const NUMBER_MAX: u64 = 99_999_999_999_999;
/// Thirty years; a time with some of these added is still a number of the above.
const SPAN_MAX_MS: u64 = 1_000_000_000_000;
/// Sessions that a gateway may say in one question: a server takes a million words.
const SAID_MAX: usize = 200_000;

/// Says which field has a value that cannot be, and what could.
pub(super) fn check(ask: &Ask) -> Result<(), String> {
    match ask {
        Ask::Configure { rules, .. } => check_rules(rules),
        Ask::Join { gateway, link, ttl_ms, carried, waiting, .. } => {
            at_most("gateway", *gateway, GATEWAY_ID_MAX)?;
            at_most("link", *link, NUMBER_MAX)?;
            at_most("ttl_ms", *ttl_ms, SPAN_MAX_MS)?;
            let said = carried.len() + waiting.len();
            at_most("carried and waiting", said as u64, SAID_MAX as u64)?;
            let tickets = carried.iter().map(|one| one.ticket).chain(waiting.iter().copied());
            at_most("ticket", tickets.max().unwrap_or(0), NUMBER_MAX)
        }
        Ask::Beat { gateway, link } | Ask::Leave { gateway, link } => {
            at_most("gateway", *gateway, GATEWAY_ID_MAX)?;
            at_most("link", *link, NUMBER_MAX)
        }
        Ask::Checkout(checkout) => {
            at_most("gateway", checkout.gateway, GATEWAY_ID_MAX)?;
            at_most("link", checkout.link, NUMBER_MAX)?;
            at_most("ticket", checkout.ticket, NUMBER_MAX)?;
            at_most("avoid", checkout.avoid.unwrap_or(0), NUMBER_MAX)
        }
        Ask::Close { gateway, link, ticket, .. } => {
            at_most("gateway", *gateway, GATEWAY_ID_MAX)?;
            at_most("link", *link, NUMBER_MAX)?;
            at_most("ticket", *ticket, NUMBER_MAX)
        }
        Ask::Probed { worker, incarnation, .. } => {
            at_most("worker", *worker, NUMBER_MAX)?;
            at_most("incarnation", *incarnation, NUMBER_MAX)
        }
        Ask::Register(register) => {
            at_most("slots", register.slots.unwrap_or(0).into(), SLOTS_MAX.into())?;
            at_most("lifetime", register.lifetime.into(), LIFETIME_MAX.into())
        }
        Ask::Heartbeat(heartbeat) => {
            at_most("incarnation", heartbeat.incarnation, NUMBER_MAX)?;
            at_most("lifetime", heartbeat.lifetime.into(), LIFETIME_MAX.into())
        }
        Ask::End { gateway, ticket } | Ask::Sessions { after: Some((gateway, ticket)), .. } => {
            at_most("gateway", *gateway, GATEWAY_ID_MAX)?;
            at_most("ticket", *ticket, NUMBER_MAX)
        }
        Ask::Workers { from, .. } => at_most("from", *from, NUMBER_MAX),
        Ask::Remove { .. }
        | Ask::Drain { .. }
        | Ask::Kinds
        | Ask::Worker { .. }
        | Ask::Sessions { after: None, .. } => Ok(()),
    }
}

fn check_rules(rules: &Rules) -> Result<(), String> {
    at_most("slots", rules.slots.into(), SLOTS_MAX.into())?;
    at_most("lifetime_max", rules.lifetime_max.into(), LIFETIME_MAX.into())?;
    at_most("heartbeat_ms", rules.heartbeat_ms, SPAN_MAX_MS)?;
    at_most("drain_max_ms", rules.drain_max_ms, SPAN_MAX_MS)?;
    at_most("restart_max_ms", rules.restart_max_ms, SPAN_MAX_MS)
}

fn at_most(field: &str, value: u64, most: u64) -> Result<(), String> {
    if value <= most {
        return Ok(());
    }
    Err(format!("{field}: {value} is more than {most}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_store_could_do_exactly_is_refused_by_name() {
        let beat = |gateway, link| Ask::Beat { gateway, link };
        assert_eq!(check(&beat(GATEWAY_ID_MAX, NUMBER_MAX)), Ok(()));
        let wrong = check(&beat(1, NUMBER_MAX + 1));
        assert_eq!(wrong, Err("link: 100000000000000 is more than 99999999999999".to_owned()));
        assert!(check(&beat(GATEWAY_ID_MAX + 1, 1)).is_err());
        let rules = Rules { drain_max_ms: u64::MAX, ..Rules::default() };
        let wrong = check(&Ask::Configure { kind: "k".into(), rules });
        assert!(wrong.is_err_and(|why| why.starts_with("drain_max_ms: ")));
        let waiting = vec![7; SAID_MAX + 1];
        let (node, carried) = (String::new(), Vec::new());
        let join = Ask::Join { gateway: 1, link: 1, node, ttl_ms: 1, carried, waiting };
        assert!(check(&join).is_err_and(|why| why.starts_with("carried and waiting: 200001")));
    }
}
