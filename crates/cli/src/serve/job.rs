use std::ffi::{OsStr, OsString};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;
use std::thread;

use carom::{Request, RequestId};
use carom_terminal::{CliError, plain};
use nix::errno::Errno;

use super::reply::Reply;

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) group: String,
    pub(super) command: Vec<OsString>,
    pub(super) limit: usize,
}

#[derive(Debug)]
pub(super) struct Done {
    pub(super) request: RequestId,
    pub(super) reply: Reply,
}

impl Program {
    pub(super) fn check(command: &[OsString]) -> Result<(), CliError> {
        let program = command.first().expect("clap requires at least one");
        let found = match program.to_string_lossy().contains('/') {
            true => is_executable(Path::new(program)),
            false => {
                let path = std::env::var_os("PATH").unwrap_or_default();
                let mut folders = std::env::split_paths(&path);
                let named = folders.find_map(|folder| is_executable(&folder.join(program)).ok());
                named.ok_or_else(|| ErrorKind::NotFound.into())
            }
        };
        found.map_err(|error| Self::cannot_run(program, &error))
    }

    pub(super) fn cannot_run(program: &OsStr, error: &io::Error) -> CliError {
        let what = match error.kind() {
            ErrorKind::NotFound => "program not found".to_owned(),
            ErrorKind::PermissionDenied => "not an executable file".to_owned(),
            _ if errno(error) == Errno::ENOEXEC => {
                "neither a program for this machine nor a script \
                that begins with `#!` and its interpreter"
                    .to_owned()
            }
            _ => plain(error),
        };
        let cause = format!("cannot run '{}': {what}", program.to_string_lossy());
        CliError::new(cause, "use an executable program after `--`")
    }

    /// Starts the command and returns its process id. Its reply will be sent to `done`.
    pub(super) fn start(&self, request: &Request, done: Sender<Done>) -> io::Result<u32> {
        let (program, rest) = self.command.split_first().expect("clap requires at least one");
        let mut command = Command::new(program);
        command.args(rest).env("CAROM_GROUP", &self.group);
        command.env("CAROM_CALLER", request.id.caller.to_string());
        command.env("CAROM_REQUEST", request.id.number.to_string());
        command.env("CAROM_MAY_BE_DONE", if request.may_be_done { "1" } else { "" });
        // Ctrl-C on a terminal is meant for this program alone, which lets its commands finish.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn()?;
        let (id, limit, number) = (request.id, self.limit, child.id());
        let mut stdin = child.stdin.take().expect("it is piped");
        let payload = request.payload.clone();
        thread::spawn(move || {
            // A command need not read all of its input.
            let _ = stdin.write_all(&payload);
        });
        thread::spawn(move || {
            let reply = outcome(child, limit);
            // The receiver is already gone if the program is ending.
            let _ = done.send(Done { request: id, reply });
        });
        Ok(number)
    }
}

/// Returns `true` if the command may start later. Errors of the program file are permanent, but a
/// lack of resources or an unresponsive disk is not.
pub(super) fn may_pass(error: &io::Error) -> bool {
    use Errno::{
        E2BIG, EACCES, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOEXEC, ENOTDIR, EPERM,
    };
    let last =
        [E2BIG, EACCES, EINVAL, EISDIR, ELOOP, ENAMETOOLONG, ENOENT, ENOEXEC, ENOTDIR, EPERM];
    error.raw_os_error().is_some() && !last.contains(&errno(error))
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_raw(error.raw_os_error().unwrap_or_default())
}

fn is_executable(program: &Path) -> io::Result<()> {
    let file = std::fs::metadata(program)?;
    match file.is_file() && file.permissions().mode() & 0o111 != 0 {
        true => Ok(()),
        false => Err(ErrorKind::PermissionDenied.into()),
    }
}

fn outcome(mut child: Child, limit: usize) -> Reply {
    let mut output = Vec::new();
    let stdout = child.stdout.take().expect("it is piped");
    let read = stdout.take(limit as u64 + 1).read_to_end(&mut output);
    // The pipe is now closed, which ends a command that continues to write.
    let ended = child.wait();
    match (read, ended) {
        (Ok(_), Ok(_)) if output.len() > limit => {
            Reply::failure(FAILED, &format!("the output has more than {limit} bytes"))
        }
        (Ok(_), Ok(status)) => Reply { code: code(status), output },
        (Err(error), _) | (_, Err(error)) => Reply::failure(FAILED, &plain(&error)),
    }
}

/// Returns the exit code as a shell reports it: 128 + N if signal N ended the process.
pub(crate) fn code(status: ExitStatus) -> u8 {
    let signalled = status.signal().map(|signal| BY_SIGNAL + signal);
    let code = status.code().or(signalled).unwrap_or(BY_SIGNAL);
    u8::try_from(code).unwrap_or(u8::MAX)
}

const BY_SIGNAL: i32 = 128;
/// Exit code of a reply that is not from the command.
pub(super) const FAILED: u8 = 125;

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use carom::NodeId;

    fn run(command: &[&str], limit: usize) -> Reply {
        let command = command.iter().map(OsString::from).collect();
        let program = Program { group: "g".to_owned(), command, limit };
        let id = RequestId { caller: NodeId(7), number: 3 };
        let payload = Bytes::from_static(b"what?");
        let (is_ours, is_again, may_be_done) = (true, false, false);
        let (handler, place) = (None, None);
        let request = Request { id, handler, payload, place, is_ours, is_again, may_be_done };
        let (to, done) = std::sync::mpsc::channel();
        program.start(&request, to).expect("a shell is installed");
        let done = done.recv().expect("it ends");
        assert_eq!(done.request, id);
        done.reply
    }

    #[test]
    fn the_command_reads_the_request_and_its_output_is_the_reply() {
        let reply = run(&["sh", "-c", "cat; echo \" $CAROM_GROUP $CAROM_REQUEST\"; exit 4"], 99);
        assert_eq!(reply, Reply { code: 4, output: b"what? g 3\n".to_vec() });
    }

    #[test]
    fn command_with_too_much_output_fails_and_ends() {
        let reply = run(&["yes"], 1000);
        assert_eq!(reply.code, FAILED);
        assert!(reply.output.ends_with(b"more than 1000 bytes\n"));
    }

    #[test]
    fn unrunnable_command_is_refused_at_the_start() {
        let check = |name: &str| Program::check(&[OsString::from(name)]);
        assert!(check("sh").is_ok() && check("/bin/sh").is_ok());
        for (name, why) in [
            ("/nonexistent", "program not found"),
            ("no-such-program-anywhere", "program not found"),
            ("/etc/passwd", "not an executable file"),
            ("/", "not an executable file"),
        ] {
            let text = check(name).expect_err("it cannot be run").to_string();
            assert!(text.starts_with(&format!("error: cannot run '{name}': {why}\n")), "{text}");
        }
    }

    #[test]
    fn a_failure_of_the_program_itself_does_not_pass() {
        let error = |number: Errno| io::Error::from_raw_os_error(number as i32);
        for lasting in [Errno::ENOEXEC, Errno::E2BIG, Errno::ENOENT, Errno::EACCES, Errno::ELOOP] {
            assert!(!may_pass(&error(lasting)), "{lasting}");
        }
        for passing in [Errno::EAGAIN, Errno::ENOMEM, Errno::EMFILE, Errno::ETXTBSY] {
            assert!(may_pass(&error(passing)), "{passing}");
        }
    }

    #[test]
    fn an_exit_code_is_passed_on_and_a_signal_is_128_and_its_number() {
        assert_eq!(code(ExitStatus::from_raw(7 << 8)), 7);
        assert_eq!(code(ExitStatus::from_raw(15)), 143);
    }
}
