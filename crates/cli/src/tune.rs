use carom::RateOfFire;
use carom::unstable::lateral::model::{ModelError, Setting};
use carom_terminal::{CliError, Outcome, output, units};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// Compute the effect of a rate-of-fire: the share of lost packets that repairs recover, and the
/// overhead of the repairs
#[derive(clap::Args)]
#[command(after_help = EXAMPLE)]
pub(crate) struct Args {
    /// Use the analysis in section 3.4 of the Slingshot paper (required)
    #[arg(long)]
    model: bool,
    /// Nodes in the group
    #[arg(long, value_name = "N", default_value_t = 64, allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    group_size: u32,
    /// Nodes in the view of each node, itself included [default: the whole group]
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    view: Option<u32>,
    /// Repair rate: for every R packets, each node sends repairs to C others
    #[arg(long, value_name = "R,C", default_value = "8,5", allow_hyphen_values = true)]
    #[arg(value_parser = units::rate_of_fire)]
    rate_of_fire: RateOfFire,
    /// Share of packets that each node loses
    #[arg(long, value_name = "SHARE", default_value = "1%", allow_hyphen_values = true)]
    #[arg(value_parser = units::share)]
    loss: f64,
    /// Show every c from 1 to C
    #[arg(long, value_name = "C", allow_hyphen_values = true)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..))]
    up_to_c: Option<u8>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// The output of `carom tune --model --json`. `docs/json.md` describes each field.
#[derive(Debug, Serialize)]
struct Advice {
    group_size: u32,
    view: u32,
    loss: f64,
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Point {
    r: u8,
    c: u8,
    recovered: Recovered,
    overhead: f64,
}

#[derive(Debug, Serialize)]
struct Recovered {
    lower: f64,
    upper: f64,
}

pub(crate) fn run(args: &Args) -> Result<Outcome, CliError> {
    if !args.model {
        let fix = "add --model to use the analysis of the Slingshot paper";
        return Err(CliError::new("missing required option --model", fix));
    }
    let advice = advise(args)?;
    if args.json {
        output::json(&advice)?;
    } else {
        output::lines(&for_people(&advice))?;
    }
    Ok(Outcome::Fine)
}

fn advise(args: &Args) -> Result<Advice, CliError> {
    let view = args.view.unwrap_or(args.group_size);
    let RateOfFire { r, c } = args.rate_of_fire;
    let first = if args.up_to_c.is_some() { 1 } else { c };
    let last = args.up_to_c.unwrap_or(c);
    if last < c {
        let cause = format!("--up-to-c {last} is less than the c of --rate-of-fire {r},{c}");
        return Err(CliError::new(cause, format!("use --up-to-c {c} or more")));
    }
    let points: Result<Vec<Point>, ModelError> = (first..=last)
        .map(|c| {
            let (rate, loss) = (RateOfFire::new(r, c), args.loss);
            let setting = Setting { group_size: args.group_size, view_size: view, rate, loss };
            let bounds = setting.recovered()?;
            let recovered = Recovered { lower: bounds.lower, upper: bounds.upper };
            Ok(Point { r, c, recovered, overhead: setting.overhead()? })
        })
        .collect();
    let points = points.map_err(|error| CliError::new(error.to_string(), fix_of(error)))?;
    Ok(Advice { group_size: args.group_size, view, loss: args.loss, points })
}

fn fix_of(error: ModelError) -> String {
    match error {
        ModelError::GroupSize(_) => "use --group-size 2 or more".to_owned(),
        ModelError::ViewSize { group_size, .. } => format!("use --view {group_size} or less"),
        ModelError::RateOfFire(_) => "use --rate-of-fire 8,5".to_owned(),
        ModelError::TooManyTargets { c, view_size } => {
            let (most, view) = (view_size - 1, u32::from(c) + 1);
            format!("use a c of {most} or less, or a view of {view} nodes or more")
        }
        ModelError::Loss(_) => "use --loss 1%".to_owned(),
    }
}

fn for_people(advice: &Advice) -> String {
    let Advice { group_size, view, loss, points } = advice;
    let percent = |share: f64| format!("{:.1} %", share * 100.0);
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["r", "c", "recovered, at least", "at most", "overhead"]);
    for Point { r, c, recovered, overhead } in points {
        let [lower, upper] = [recovered.lower, recovered.upper].map(percent);
        table.add_row([r.to_string(), c.to_string(), lower, upper, percent(*overhead)]);
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    format!(
        "Groups of {group_size} nodes, views of {view}, {} lost (Slingshot, section 3.4):\n{}",
        percent(*loss),
        table.trim_fmt()
    )
}

const EXAMPLE: &str = "Examples:
  carom tune --model --group-size 64 --rate-of-fire 8,5 --loss 1%
  carom tune --model --group-size 360 --view 40 --up-to-c 8
  carom tune --model --up-to-c 8 --json | jq '.points[] | [.c, .recovered.lower]'

Exit codes: 0 success, 2 usage error";

#[cfg(test)]
mod tests {
    use super::*;

    fn args(more: &[&str]) -> Args {
        #[derive(clap::Parser)]
        struct Only {
            #[command(flatten)]
            args: Args,
        }
        let args = ["tune", "--model"].iter().chain(more);
        <Only as clap::Parser>::try_parse_from(args).map(|only| only.args).expect("valid arguments")
    }

    #[test]
    fn a_sweep_has_a_point_for_every_c_and_they_are_the_papers() {
        let advice = advise(&args(&["--up-to-c", "8"])).expect("a possible setting");
        assert_eq!(
            advice.points.iter().map(|point| point.c).collect::<Vec<_>>(),
            [1, 2, 3, 4, 5, 6, 7, 8]
        );
        let text = for_people(&advice);
        let row: Vec<&str> = text.lines().nth(6).unwrap_or_default().split_whitespace().collect();
        assert_eq!(row, ["8", "5", "92.6", "%", "99.1", "%", "38.2", "%"], "{text}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_a_way_out() {
        let refused =
            |more: &[&str]| advise(&args(more)).expect_err("an impossible setting").to_string();
        let error = refused(&["--view", "65"]);
        assert!(error.contains("views of 65") && error.contains("--view 64"), "{error}");
        let error = refused(&["--group-size", "4"]);
        assert!(error.contains("c = 5") && error.contains("view of 6 nodes"), "{error}");
        assert!(refused(&["--up-to-c", "3"]).contains("use --up-to-c 5"));
    }
}
