//! Header fields that a route adds, sets or removes.

/// What is done to the fields of a head.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rules {
    /// Lower case. Those that are set are among them.
    dropped: Vec<Box<str>>,
    /// Whole lines.
    added: Vec<u8>,
}

impl Rules {
    pub fn new<'a>(
        set: impl Iterator<Item = (&'a str, &'a str)> + Clone,
        add: impl Iterator<Item = (&'a str, &'a str)>,
        remove: impl Iterator<Item = &'a str>,
    ) -> Self {
        let names = set.clone().map(|(name, _)| name).chain(remove);
        let dropped = names.map(|name| name.to_ascii_lowercase().into_boxed_str()).collect();
        let mut added = Vec::new();
        for (name, value) in set.chain(add) {
            crate::http1::fields::write(&mut added, &name.to_ascii_lowercase(), value.as_bytes());
        }
        Rules { dropped, added }
    }

    /// Whether a field of this name is left out.
    pub fn drops(&self, name: &str) -> bool {
        self.dropped.iter().any(|dropped| dropped.eq_ignore_ascii_case(name))
    }

    /// Lines that are added.
    pub fn added(&self) -> &[u8] {
        &self.added
    }
}
