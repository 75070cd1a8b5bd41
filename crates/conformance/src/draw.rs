use carom_proto::Rng;

/// Returns one of `choices` at random.
pub fn one_of<T: Clone>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len())].clone()
}
