//! What the script answers, read strictly: a text in the wrong place is an error and nothing else.

use skep_policy::ownership::{
    Answer, Ask, Epoch, Key, NodeRow, Reply, Request, Row, Status, Ticked,
};
use std::str::FromStr;

/// Epoch, tag, settled, clock, and the answer as a kind and its parts.
pub(super) type Raw = (u64, u64, u8, i64, Vec<String>);

pub(super) fn read(request: &Request, raw: Raw) -> Result<Reply, String> {
    let (number, tag, settled, clock_ms, parts) = raw;
    let mut parts = Parts { parts: parts.iter() };
    let answer = match parts.next()? {
        "other-epoch" => Answer::OtherEpoch,
        "no-session" => Answer::NoSession,
        "stale" => Answer::Stale,
        "done" => Answer::Done,
        "joined" => Answer::Joined { session: parts.number()?, seq: parts.number()? },
        "held" => Answer::NameHeld {
            session: parts.number()?,
            seq: parts.number()?,
            instance: parts.next()?.into(),
        },
        "expired" => Answer::Expired(parts.flag()?),
        "ticked" => parts.ticked()?,
        "rows" => {
            let mut rows = Vec::new();
            for key in keys_of(&request.ask) {
                rows.push(row(key.clone(), parts.next()?)?);
            }
            Answer::Rows(rows)
        }
        other => return Err(format!("an answer of the kind {other:?}")),
    };
    parts.end()?;
    let epoch = Epoch { number, tag };
    Ok(Reply { epoch, settled: flag(settled)?, clock_ms, answer })
}

struct Parts<'a> {
    parts: std::slice::Iter<'a, String>,
}

impl<'a> Parts<'a> {
    fn next(&mut self) -> Result<&'a str, String> {
        self.parts.next().map(String::as_str).ok_or_else(|| "it ends too early".to_owned())
    }

    fn number<T: FromStr>(&mut self) -> Result<T, String> {
        number(self.next()?)
    }

    fn flag(&mut self) -> Result<bool, String> {
        flag(self.number()?)
    }

    fn ticked(&mut self) -> Result<Answer, String> {
        let (seq, upto) = (self.number()?, self.number()?);
        let (more, full, floor) = (self.flag()?, self.flag()?, self.number()?);
        let count: usize = self.number()?;
        let mut nodes = Vec::new();
        for _ in 0..count {
            nodes.push(node(self.next()?, self.next()?)?);
        }
        nodes.sort_by(|one, other| one.name.cmp(&other.name));
        let mut rows = Vec::with_capacity(self.parts.len() / 2);
        while self.parts.len() > 0 {
            rows.push(row(self.next()?.into(), self.next()?)?);
        }
        // Alone is who cannot be joined unheard, which no store between processes can promise.
        Ok(Answer::Ticked(Ticked { seq, nodes, rows, upto, more, full, floor, alone: false }))
    }

    fn end(&mut self) -> Result<(), String> {
        match self.parts.next() {
            None => Ok(()),
            Some(part) => Err(format!("{part:?} after its end")),
        }
    }
}

fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("{text:?} where a number belongs"))
}

fn flag(number: u8) -> Result<bool, String> {
    match number {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(format!("{other} where yes or no belongs")),
    }
}

fn row(key: Key, packed: &str) -> Result<Row, String> {
    let parts: Vec<&str> = packed.split('|').collect();
    let &[session, counter, due] = parts.as_slice() else {
        return Err(format!("{packed:?} where a row belongs"));
    };
    Ok(Row { key, session: number(session)?, counter: number(counter)?, due: number(due)? })
}

fn node(name: &str, packed: &str) -> Result<NodeRow, String> {
    let bad = || format!("{packed:?} where a node belongs");
    let parts: Vec<&str> = packed.splitn(6, '|').collect();
    let &[session, seq, weight, status, bytes, rest] = parts.as_slice() else { return Err(bad()) };
    let (instance, info) = rest.split_at_checked(number(bytes)?).ok_or_else(bad)?;
    Ok(NodeRow {
        name: name.into(),
        instance: instance.into(),
        session: number(session)?,
        seq: number(seq)?,
        weight: number(weight)?,
        status: Status::from_name(status).ok_or_else(bad)?,
        info: info.into(),
    })
}

/// The keys asked about, in the order asked.
fn keys_of(ask: &Ask) -> Vec<&Key> {
    match ask {
        Ask::Claim(_, keys) | Ask::Forget(_, keys) => keys.iter().collect(),
        Ask::Reclaim(_, held) => held.iter().map(|(key, ..)| key).collect(),
        Ask::Handoff(_, moves) => moves.iter().map(|(key, ..)| key).collect(),
        Ask::Release(_, keys) => keys.iter().map(|(key, _)| key).collect(),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use skep_policy::ownership::{Caller, Seen};

    fn request() -> Request {
        let caller = Caller { name: "n".into(), session: 1, seq: 2 };
        let ask = Ask::Claim(caller, vec!["a".into(), "b".into()]);
        Request { seen: Seen::default(), nonce: 1, least: 0, ask }
    }

    fn said(parts: &[&str]) -> Result<Answer, String> {
        let parts = parts.iter().map(ToString::to_string).collect();
        read(&request(), (1, u64::MAX, 1, 0, parts)).map(|reply| reply.answer)
    }

    #[test]
    fn rows_are_given_to_the_keys_in_the_order_asked() {
        let rows = said(&["rows", "7|9|-3", "0|0|0"]).expect("reads");
        let row = |key: &str, session, counter, due| Row { key: key.into(), session, counter, due };
        assert_eq!(rows, Answer::Rows(vec![row("a", 7, 9, -3), row("b", 0, 0, 0)]));
    }

    #[test]
    fn a_bar_or_a_letter_of_two_bytes_in_a_node_is_no_trouble() {
        let ticked = said(&["ticked", "4", "4", "0", "0", "0", "1", "n", "1|4|1|online|5|a|ü|b|c"]);
        let Ok(Answer::Ticked(Ticked { nodes, .. })) = ticked else { panic!("{ticked:?}") };
        assert_eq!((&*nodes[0].instance, &*nodes[0].info), ("a|ü|", "b|c"));
    }

    #[test]
    fn what_makes_no_sense_is_an_error() {
        for parts in [
            &[][..],
            &["what"],
            &["done", "more"],
            &["joined", "1"],
            &["joined", "-1", "2"],
            &["expired", "2"],
            &["rows", "1|2|3"],
            &["rows", "1|2|3", "1|2"],
            &["rows", "1|2|3", "1|2|3", "1|2|3"],
            &["ticked", "4", "4", "0", "0", "0", "1", "n"],
            &["ticked", "4", "4", "0", "0", "0", "1", "n", "1|4|1|asleep|0|"],
            &["ticked", "4", "4", "0", "0", "0", "1", "n", "1|4|1|online|9|short"],
            &["ticked", "4", "4", "0", "0", "0", "1", "n", "1|4|1|online|1|ü"],
            &["ticked", "4", "4", "0", "0", "0", "0", "key"],
        ] {
            assert!(said(parts).is_err(), "{parts:?}");
        }
    }
}
