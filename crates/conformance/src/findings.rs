use carom_sim::scenario::Violation;

#[derive(Debug, Default)]
pub(crate) struct Findings(pub(crate) Vec<Violation>);

impl Findings {
    pub(crate) fn add(&mut self, rule: &'static str, what: String) {
        self.0.push(Violation { rule, what });
    }
}
