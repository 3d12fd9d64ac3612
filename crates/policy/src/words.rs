//! Sentences for people.

/// A number of things, with the noun as it must be: `1 message`, `2 messages`.
pub fn many_of(number: u64, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::many_of;

    #[test]
    fn one_is_one_and_all_others_are_many() {
        assert_eq!([0, 1, 2].map(|number| many_of(number, "jar")), ["0 jars", "1 jar", "2 jars"]);
    }
}
