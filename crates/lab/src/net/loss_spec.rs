use std::time::Duration;

use carom_netns::Loss;
use carom_terminal::units::{self, UnitError};

/// Parses losses: `none`, `1%`, `outages:20ms/1s` or `bursts:10ms/990ms`.
pub(super) fn parse(text: &str) -> Result<Loss, UnitError> {
    let loss = match text.split_once(':') {
        Some(("outages", times)) => {
            let (length, period) = pair(text, times)?;
            Loss::Outages { length, period }
        }
        Some(("bursts", times)) => {
            let (bad, good) = pair(text, times)?;
            Loss::GilbertElliott { good, bad, seed: 0 }
        }
        Some(_) => return Err(invalid(text)),
        None if text == "none" => Loss::None,
        None => Loss::Independent { probability: units::share(text)? },
    };
    loss.validate().map_err(|error| UnitError {
        cause: error.cause().to_owned(),
        fix: error.fix().to_owned(),
    })?;
    Ok(loss)
}

/// Returns losses of which each host or rack draws its own.
pub(super) fn seeded(loss: Loss, seed: usize) -> Loss {
    match loss {
        Loss::GilbertElliott { good, bad, .. } => {
            Loss::GilbertElliott { good, bad, seed: seed as u64 }
        }
        other => other,
    }
}

fn pair(text: &str, times: &str) -> Result<(Duration, Duration), UnitError> {
    let (first, second) = times.split_once('/').ok_or_else(|| invalid(text))?;
    Ok((units::duration(first)?, units::duration(second)?))
}

fn invalid(text: &str) -> UnitError {
    UnitError { cause: format!("losses '{text}' are invalid"), fix: FIX.to_owned() }
}

const FIX: &str = "use none, a share such as 1%, outages:20ms/1s, or bursts:10ms/990ms";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_form_of_losses_is_parsed() {
        let ms = Duration::from_millis;
        assert_eq!(parse("none"), Ok(Loss::None));
        assert_eq!(parse("1%"), Ok(Loss::Independent { probability: 0.01 }));
        assert!(
            matches!(parse("0.00001%"), Ok(Loss::Independent { probability }) if probability > 0.0)
        );
        let outages = Loss::Outages { length: ms(20), period: ms(1000) };
        assert_eq!(parse("outages:20ms/1s"), Ok(outages));
        let bursts = Loss::GilbertElliott { good: ms(990), bad: ms(10), seed: 0 };
        assert_eq!(parse("bursts:10ms/990ms"), Ok(bursts));
    }

    #[test]
    fn impossible_losses_are_refused() {
        for text in
            ["0.0000001%", "", "storms:1s/2s", "bursts:10ms", "outages:2s/1s", "bursts:0ms/1s"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
