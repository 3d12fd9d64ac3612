//! How many workers fit a machine.

/// The most workers of the pools that grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Of the critical tier.
    pub critical: u16,
    /// Of the high tier.
    pub high: u16,
    /// Of the shared pool.
    pub shared: u16,
}

/// The sizes for a process that may use `cores` cores: half of them, three quarters and one and a
/// half times as many, never less than two. Eight cores give 4, 6 and 12.
pub fn sizes_for(cores: u16) -> Sizes {
    let cores = cores.clamp(1, 1_024);
    Sizes {
        critical: (cores / 2).max(2),
        high: (cores * 3 / 4).max(2),
        shared: (cores * 3 / 2).max(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_cores_are_the_table_everybody_knows() {
        assert_eq!(sizes_for(8), Sizes { critical: 4, high: 6, shared: 12 });
    }

    #[test]
    fn small_machines_keep_two_of_each_and_large_ones_do_not_overflow() {
        for cores in [0, 1, 2] {
            let sizes = sizes_for(cores);
            assert!((sizes.critical, sizes.high) == (2, 2) && sizes.shared >= 2, "{cores}");
        }
        assert_eq!(sizes_for(64), Sizes { critical: 32, high: 48, shared: 96 });
        assert_eq!(sizes_for(u16::MAX).shared, 1_536);
    }
}
