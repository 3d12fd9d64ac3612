//! "Did you mean …?"

/// The known name that is most like `typed`, if at most two in five of its letters are wrong.
pub(super) fn nearest<'name>(typed: &str, known: &[&'name str]) -> Option<&'name str> {
    let typed: Vec<u8> = typed.bytes().take(64).map(|byte| byte.to_ascii_lowercase()).collect();
    let distances = known.iter().map(|name| (distance(&typed, name.as_bytes()), *name));
    let (steps, name) = distances.min()?;
    (steps * 5 <= name.len() * 2).then_some(name)
}

/// How many letters must be put in, taken out or replaced to make one of the other.
fn distance(one: &[u8], other: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (line, a) in one.iter().enumerate() {
        let mut diagonal = row[0];
        row[0] = line + 1;
        for (column, b) in other.iter().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[column + 1];
            row[column + 1] = replaced.min(row[column] + 1).min(diagonal + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_field_and_anything_else_finds_none() {
        let known = ["upstreams", "timeouts", "tls", "retry"];
        assert_eq!(nearest("upstream", &known), Some("upstreams"));
        assert_eq!(nearest("Time-outs", &known), Some("timeouts"));
        assert_eq!(nearest("retries", &known), None);
        assert_eq!(nearest("tsl", &known), None);
        assert_eq!(nearest("tl", &known), Some("tls"));
        assert_eq!(nearest("something", &known), None);
        assert_eq!(nearest("", &[]), None);
    }

    #[test]
    fn the_distance_counts_single_letters() {
        for (one, other, steps) in [("", "", 0), ("a", "", 1), ("abc", "axc", 1), ("ab", "ba", 2)] {
            assert_eq!(distance(one.as_bytes(), other.as_bytes()), steps, "{one} {other}");
        }
    }
}
