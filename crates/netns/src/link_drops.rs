use serde_json::Value;

use crate::error::Error;
use crate::namespace::Namespace;

/// Returns the number of packets that an interface has dropped instead of sending them: at its
/// queue, and because the other end of its link did not accept them.
///
/// The other end counts the latter once more, as dropped on receipt. That counter also has packets
/// of unknown protocols, which the link has delivered, so that it is not read.
pub(crate) fn of_interface(namespace: &Namespace, interface: &str) -> Result<u64, Error> {
    let queues = report(namespace, "tc", &["-s", "-j", "qdisc", "show", "dev", interface])?;
    let links = report(namespace, "ip", &["-s", "-j", "link", "show", "dev", interface])?;
    // The root counts what the queues below it drop, too.
    let root = queues.iter().find(|it| it["root"] == true);
    let queue = root.and_then(|it| it["drops"].as_u64());
    let link = links.first().and_then(|it| it["stats64"]["tx"]["dropped"].as_u64());
    queue.zip(link).map(|(queue, link)| queue + link).ok_or_else(|| {
        let name = namespace.name();
        let cause = format!("tc and ip did not report the drops of {interface} in '{name}'");
        Error::new(cause, "use iproute2 5.0 or later")
    })
}

fn report(namespace: &Namespace, program: &str, args: &[&str]) -> Result<Vec<Value>, Error> {
    let text = namespace.output(program, args, "")?;
    Ok(serde_json::from_str(&text).unwrap_or_default())
}
