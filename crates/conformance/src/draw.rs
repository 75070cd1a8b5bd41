//! Random draws.

use carom_proto::Rng;

/// Draws one of `choices`.
pub fn one_of<T: Clone>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len())].clone()
}
