use std::fs;
use std::path::{Path, PathBuf};

use carom_bench::plan::{Roles, Row};
use carom_bench::report::{Kind, Order};
use carom_netns::{Host, Layout};

use super::manifest::{FileCommands, Manifest};

/// A system with its settings, ready to be started.
#[derive(Clone, Debug)]
pub(super) struct System {
    /// Name with the settings unless they are the default: `aeron`, or `aeron:tuned`.
    pub(super) name: String,
    pub(super) kind: Kind,
    /// Order of delivery that the system promises.
    pub(super) order: Order,
    /// Program of a node, and its first arguments.
    program: Vec<String>,
    settings: Settings,
    /// Commands for a row with a file.
    pub(super) files: Option<FileCommands>,
    /// Version, if it is known without a run.
    pub(super) version: String,
    environment: Vec<(String, String)>,
    pub(super) warm_up_s: u64,
    /// Expected seconds from the start to `go`.
    pub(super) start_s: f64,
    /// Sentences for the report.
    pub(super) notes: Vec<String>,
}

#[derive(Clone, Debug)]
enum Settings {
    None,
    /// Text of a file that is written for each run.
    Text(String),
    File(PathBuf),
}

impl System {
    /// Finds the system that a row names. The error is the reason why it cannot be measured.
    pub(super) fn find(name: &str, row: &Row, peers: &Path) -> Result<Self, String> {
        let (base, settings) = parts(name, row);
        let name = &*full_name(name, row);
        match base {
            "carom" if row.file_mib.is_some() => Self::carom_files(),
            "raw" if row.file_mib.is_some() => Err(NO_FILES.to_owned()),
            "carom" | "raw" => Self::own(name, base, settings, row.mtu),
            _ => Self::peer(name, base, settings, row, peers),
        }
    }

    /// Returns the kind of a system, available or not.
    pub(super) fn kind_of(name: &str) -> Kind {
        match name.split(':').next() {
            Some("carom") => Kind::Carom,
            Some("raw") => Kind::Raw,
            _ => Kind::Peer,
        }
    }

    fn own(name: &str, base: &str, settings: &str, mtu: u32) -> Result<Self, String> {
        let (text, order) = match (base, settings) {
            (_, "default") => ("", Order::None),
            ("raw", "stamped") => ("kernel_times = true\n", Order::None),
            ("carom", "ordered") => ("profile = \"ordered\"\n", Order::Total),
            ("carom", "bulk") => ("profile = \"bulk\"\n", Order::Source),
            _ => return Err(format!("{base} has no settings '{settings}'")),
        };
        let mtu = match base {
            "carom" if mtu != Layout::default().mtu => format!("mtu = {mtu}\n"),
            _ => String::new(),
        };
        let text = format!("{text}{mtu}");
        let settings = if text.is_empty() { Settings::None } else { Settings::Text(text) };
        let program =
            std::env::current_exe().map_err(|error| format!("no own program: {error}"))?;
        let program = program.display().to_string();
        let words = [&program, "bench", "node", "--system", base].map(str::to_owned);
        Ok(Self {
            name: name.to_owned(),
            kind: Self::kind_of(base),
            order,
            program: words.to_vec(),
            settings,
            files: None,
            version: String::new(),
            environment: Vec::new(),
            warm_up_s: 0,
            start_s: 0.0,
            notes: Vec::new(),
        })
    }

    /// Returns the system that sends files by the command `carom`.
    fn carom_files() -> Result<Self, String> {
        let own = std::env::current_exe().map_err(|error| format!("no own program: {error}"))?;
        let carom = own.with_file_name("carom");
        if !carom.exists() {
            return Err(format!("{} is missing: build carom-cli as well", carom.display()));
        }
        let carom = carom.display().to_string();
        let words = |words: &str| {
            let words = words.split(' ').map(str::to_owned);
            std::iter::once(carom.clone()).chain(words).collect()
        };
        let commands = FileCommands {
            sender: words("send {file} --to bench --receivers {receivers} --interface {address}"),
            receiver: words("recv {folder} --from bench --interface {address}"),
            copy: "{folder}/{name}".to_owned(),
            receiver_ends: true,
        };
        let version = format!("carom {}", env!("CARGO_PKG_VERSION"));
        let own = Self::own("carom", "carom", "default", Layout::default().mtu)?;
        Ok(Self { files: Some(commands), version, ..own })
    }

    fn peer(
        name: &str,
        base: &str,
        settings: &str,
        row: &Row,
        peers: &Path,
    ) -> Result<Self, String> {
        let manifest = Manifest::read(peers, base)?;
        if row.file_mib.is_some() {
            return Self::file_peer(name, settings, manifest);
        }
        if manifest.start.is_empty() {
            return Err("it sends only files".to_owned());
        }
        let Some(file) = manifest.settings.get(settings) else {
            return Err(format!("{base} has no settings '{settings}'"));
        };
        if row.groups > manifest.groups {
            return Err(format!("{} groups: at most {}", row.groups, manifest.groups));
        }
        if row.roles == Roles::AllMembers && !manifest.supports("members") {
            return Err("it has no groups in which all nodes send".to_owned());
        }
        if row.background_mib.is_some() && !manifest.supports("background") {
            return Err(NO_BACKGROUND.to_owned());
        }
        let out = peers.display().to_string();
        let program = manifest.start.iter().map(|word| word.replace("{out}", &out)).collect();
        Ok(Self {
            name: name.to_owned(),
            kind: Kind::Peer,
            order: manifest.order(row.roles),
            program,
            settings: Settings::File(peers.join(base).join(file)),
            files: None,
            version: String::new(),
            environment: manifest.environment.into_iter().collect(),
            warm_up_s: manifest.warm_up_s,
            start_s: manifest.start_s + manifest.warm_up_s as f64,
            notes: manifest.notes,
        })
    }

    fn file_peer(name: &str, settings: &str, manifest: Manifest) -> Result<Self, String> {
        let commands = manifest.files.get(settings).ok_or(NO_FILES)?;
        let version = manifest.version.split_first().and_then(|(program, args)| {
            let output = std::process::Command::new(program).args(args).output().ok()?;
            Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
        });
        Ok(Self {
            name: name.to_owned(),
            kind: Kind::Peer,
            order: Order::None,
            program: Vec::new(),
            settings: Settings::None,
            files: Some(commands.clone()),
            version: version.unwrap_or_default(),
            environment: Vec::new(),
            warm_up_s: 0,
            start_s: 0.0,
            notes: manifest.notes,
        })
    }

    /// Returns the command of a node on `host`, whose other arguments are `work`. Writes the
    /// settings to `folder` if they are no file yet.
    pub(super) fn command(
        &self,
        host: &Host,
        work: &[String],
        folder: &Path,
    ) -> std::io::Result<std::process::Command> {
        let mut words = self.program.clone();
        words.extend(work.iter().cloned());
        let settings = match &self.settings {
            Settings::None => None,
            Settings::Text(text) => {
                let path = folder.join("settings.toml");
                fs::write(&path, text)?;
                Some(path)
            }
            Settings::File(path) => Some(path.clone()),
        };
        if let Some(path) = settings {
            words.extend(["--settings".to_owned(), path.display().to_string()]);
        }
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (program, args) = words.split_first().expect("a system has a program");
        let mut command = host.command(program, args);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        Ok(command)
    }
}

/// Returns the name of a system of a row, with its settings unless they are the default.
pub(super) fn full_name(name: &str, row: &Row) -> String {
    match parts(name, row) {
        (base, "default") => base.to_owned(),
        (base, settings) => format!("{base}:{settings}"),
    }
}

fn parts<'a>(name: &'a str, row: &'a Row) -> (&'a str, &'a str) {
    name.split_once(':').unwrap_or((name, &row.settings))
}

const NO_FILES: &str = "it sends no files";
const NO_BACKGROUND: &str = "its node has no second stream for a background transfer";
/// The names of all peers.
pub(super) const PEERS: [&str; 8] =
    ["cyclone", "norm", "openpgm", "corosync", "aeron", "jgroups", "uftp", "udpcast"];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::cases;

    #[test]
    fn systems_that_cannot_be_measured_have_a_reason() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        let all = cases::built_in();
        let row = |name: &str| all.iter().find(|row| row.name == name).expect("it is built in");
        let reason = |name: &str, of: &str| {
            System::find(name, row(of), &peers).map(|it| it.name).expect_err("it cannot be had")
        };
        assert_eq!(reason("raw:fast", "pace"), "raw has no settings 'fast'");
        assert_eq!(reason("norm:fast", "pace"), "norm has no settings 'fast'");
        let members = reason("aeron:tuned", "order-4-all");
        assert_eq!(members, "it has no groups in which all nodes send");
        assert!(reason("dds", "pace").starts_with("not built: "));
        assert_eq!(reason("carom:stamped", "pace"), "carom has no settings 'stamped'");
        let system = System::find("cyclone:tuned", row("pace"), &peers).expect("it has a manifest");
        assert_eq!((system.kind, &*system.name), (Kind::Peer, "cyclone:tuned"));
        assert_eq!(system.order, Order::Source);
    }

    #[test]
    fn name_of_a_system_shows_the_settings_of_the_row() {
        let all = cases::built_in();
        let mut row = all[0].clone();
        assert_eq!(full_name("carom", &row), "carom");
        row.settings = "ordered".to_owned();
        assert_eq!(full_name("carom", &row), "carom:ordered");
        assert_eq!(full_name("carom:default", &row), "carom");
        assert_eq!(full_name("carom:bulk", &row), "carom:bulk");
    }

    #[test]
    fn every_row_names_systems_that_exist() {
        let peers = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers");
        for row in cases::built_in() {
            // The command `carom` is not beside this test.
            let names =
                row.systems.iter().filter(|name| row.file_mib.is_none() || *name != "carom");
            for name in names {
                let reason = System::find(name, &row, &peers).err();
                let is_known = |it: &String| row.background_mib.is_some() && it == NO_BACKGROUND;
                let has_surprise = reason.as_ref().is_some_and(|it| !is_known(it));
                assert!(!has_surprise, "{}: {name}: {reason:?}", row.name);
            }
        }
    }
}
