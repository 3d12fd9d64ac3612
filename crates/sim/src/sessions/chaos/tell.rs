//! What happened, as one number, and in words if somebody wants to read it.

use super::world::World;
use skep_policy::sessions::{Ask, Reply};

/// Steps that are kept in words.
const STEPS_TOLD: usize = 60;

impl World {
    pub(super) fn note(&mut self, ask: &Ask, reply: &Reply) {
        let kind = match ask {
            Ask::Checkout(checkout) => checkout.ticket,
            Ask::Close { ticket, .. } => ticket << 8,
            Ask::Join { link, .. } => link << 16,
            _ => 1 << 24,
        };
        let step = self.now ^ (kind << 20) ^ ((reply.hints.len() as u64) << 56);
        self.trace = self.trace.rotate_left(5).wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ step;
        self.tell(|| format!("{ask:?} -> {:?}", reply.answer));
    }

    pub(super) fn tell(&mut self, what: impl FnOnce() -> String) {
        if self.told && self.broken.is_none() {
            if self.story.len() == STEPS_TOLD {
                self.story.pop_front();
            }
            self.story.push_back(format!("{} {}", self.now, what()));
        }
    }
}
