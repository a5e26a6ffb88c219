// What other systems of this kind got wrong in running commands and keeping files, and which test keeps it from
// happening here. Fails where a test that is named here is not there any more.
import { type Guards, stillTested } from "./guards.ts";

const EXEC = "agent/exec/exec.test.ts";
const ENDING = "agent/exec/ending.test.ts";
const STATE = "agent/session/state.test.ts";
const OUTPUT = "agent/session/output.test.ts";
const TABLE = "agent/table.test.ts";
const FILES = "agent/files/files.test.ts";
const TAR = "agent/files/tar.test.ts";
const WIRE = "broker/endpoint/exec.test.ts";
const STREAMS = "broker/endpoint/streams.test.ts";
const HOSTILE = "test/chaos/hostile-commands.test.ts";
const NATS = "test/chaos/nats.test.ts";
const SDK = "test/integration/sdk-typescript";
const PYTHON = "sdk/python/tests/test_commands.py";

const GUARDS: Guards = {
  // Exec.
  "a lost infrastructure as exit code -1, 137 or 0": [
    [`${SDK}/faults.test.ts`, "a killed daemon is a lost sandbox to all that waits for it"],
    ["test/chaos/daemons.test.ts", "while a command runs: it ends as lost, never as an exit code"],
  ],
  "a retry ran a command several times": [
    [WIRE, "the same id while it runs attaches: one command, two answers"],
    [`${SDK}/faults.test.ts`, "commands that are sent while the broker is away run once, when it is back"],
    [NATS, "commands sent at the very moment run at most once"],
  ],
  "a stream ended without its last chunk": [
    ["sdk/python/tests/test_frames.py", "test_output_that_stays_lost_is_told_not_hidden"],
    [STREAMS, "credit bounds what is sent, back-pressure what is held, and not a byte is lost or doubled"],
  ],
  "last line without newline, CR/LF, bytes ff 00 0d 0a lost": [
    [EXEC, "ff 00 0d 0a and a last line without newline come as they were written"],
    [OUTPUT, "every byte comes, to the last one without a newline"],
    [TABLE, "bytes ff 00 0d 0a are kept"],
  ],
  "blank lines lost, CR/LF stripped, U+2028 split a line, on the way in": [
    [EXEC, "blank lines, CR LF, U+2028 and no last newline arrive as they were given"],
    [STATE, "blank lines, CR LF and U+2028 in a command, and in its stdin, arrive as they were given"],
    ["agent/session/python.test.ts", "U+2028 and a form feed in a text end no line of it"],
    [`${SDK}/exec.test.ts`, "blank lines, CR LF, U+2028 and no last newline go both ways as they are"],
    [PYTHON, "test_blank_lines_cr_lf_and_u2028_go_both_ways_as_they_are"],
  ],
  "U+2028 split a line of JSON": [
    ["sdk/cli/output.test.ts", "a line of JSON is one line, also to who ends lines at U+2028"],
  ],
  "output that is no UTF-8 raised, a character split over chunks": [
    ["sdk/typescript/command/chunk.test.ts", "bytes that are no UTF-8 become the same text"],
    [PYTHON, "test_a_stream_comes_as_it_is_written_and_text_is_never_split"],
  ],
  "a time-out or cancel left grandchildren": [
    [ENDING, "at the time limit, grandchildren and those with a session of their own too"],
    [ENDING, "also when a fork storm is under way"],
    [`${SDK}/exec.test.ts`, "aborting ends the command's whole tree in the sandbox"],
    [TABLE, "no grandchild is left after a time-out"],
  ],
  "a time-out raised only after the command ended by itself": [
    [ENDING, "by SIGKILL after the grace, where SIGTERM is ignored"],
    [WIRE, "an executor that never ends a command does not leave the caller without an answer"],
  ],
  "a hung command wedged all later ones": [
    [HOSTILE, "of processes ends at its time limit, and the sandbox works on"],
    ["agent/session/ending.test.ts", "a shell that cannot be brought back is ended"],
  ],
  "the client gone, its command went on for ever": [
    ["test/chaos/clients.test.ts", "killed while commands run leaves none of them, nor what they started"],
    [`${SDK}/stream.test.ts`, "leaving a stream's loop ends the command"],
  ],
  "a background child that holds the pipe blocked the reply": [
    [ENDING, "a child that holds stdout does not delay the reply, and is listed"],
    [STATE, "a background job lives on, does not delay the answer, and can be waited for"],
    [TABLE, "`sleep 61 & echo hi` blocks nobody"],
  ],
  "ECHILD as exit 1, statuses stolen": [
    ["agent/process/settle.test.ts", "orphans are reaped, and none of the own commands' statuses is stolen"],
    [EXEC, "every exit code is told as it is"],
    ["agent/process/settle.test.ts", "a status that someone else took is a fault that is told"],
    ["agent/main.test.ts", "owes nothing to what its parent ignored, blocked, closed or set going"],
  ],
  "SIGKILL and exit 137 taken for one another": [
    [EXEC, "SIGKILL is told from exit code 137"],
    [TABLE, "SIGKILL is told from exit 137"],
  ],
  "the end of a command told in its output, or forged by it": [
    [OUTPUT, "a command can neither forge nor break the end of itself, whatever it writes where"],
  ],
  "a chatty command grew the daemon without bound": [
    [HOSTILE, "of output from a command whose reader stalls leaves the daemon's memory flat"],
    [ENDING, "a paused command waits, and the daemon's memory does not grow"],
  ],
  "programs that write to /dev/stdout failed": [
    [EXEC, "programs that open /dev/stdout and /proc/self/fd/1 can"],
    [OUTPUT, "programs that open /dev/stdout and /dev/stderr work"],
  ],
  "SIGTERM not passed on, zombies under PID 1": [
    ["agent/main.test.ts", "becomes ready, runs commands, and ends all of them on SIGTERM"],
    ["agent/process/settle.test.ts", "10,000 short orphans leave no zombie"],
    [TABLE, "10 orphans as PID 1 leave 0 zombies"],
  ],
  "sessions forgot functions, aliases, options, jobs and the environment": [
    [STATE, "folder, variables, exports, functions, aliases, options, traps and arguments live on"],
    [TABLE, "functions, aliases and jobs are kept in a session"],
  ],
  "an environment file ignored in sessions": [
    [
      "agent/session/environment-file.test.ts",
      "a session begins with what its environment file sets up, and not with what that says",
    ],
    [EXEC, "what the file that BASH_ENV names sets up, whoever starts the shell"],
  ],
  "sessions fell over with several at once": [
    ["agent/session/ending.test.ts", "many sessions work at the same time"],
  ],
  "deleting /tmp broke every later command": [
    [HOSTILE, "/tmp, /var/tmp and /run deleted: later commands, sessions and files work"],
  ],
  "a command was taken before the sandbox was set up": [
    ["broker/endpoint/endpoint.test.ts", "a request sent at the word ready finds the sandbox listening"],
    ["broker/endpoint/endpoint.test.ts", "a request that overtakes the word of its grant waits for it"],
  ],
  "streams cut by whatever is between": [
    [
      `${SDK}/faults.test.ts`,
      "a command outlives a restart of the broker, runs once, and its whole output arrives",
    ],
  ],
  "running commands could neither be listed nor attached to": [
    [
      `${SDK}/exec.test.ts`,
      "a started command goes on by itself: attach, stdin, wait, signal and cancel by id",
    ],
    [STREAMS, "several readers from their own offsets at once, and one after the end"],
  ],
  "records and temporary files kept for ever": [
    [HOSTILE, "thousands in a row: the daemon's memory is flat, and no descriptor or zombie is left"],
    [WIRE, "output beyond the memory for it pushes out the oldest, never the newest"],
  ],
  "another command's end taken for a kill for memory": [
    ["agent/process/oom.test.ts", "a kill below a shell, or of background work, is not the next command's"],
  ],
  "used-up memory ended the daemon": [[HOSTILE, "of memory is told as killed for memory, with the limit"]],
  "secrets in logs": [
    ["agent/main.test.ts", "logs no secret of a command's, at any level, also where it fails"],
  ],
  "another user's or the same user's commands read the daemon's secrets": [
    [HOSTILE, "is hidden from root in the sandbox"],
    [HOSTILE, "is hidden from commands of the daemon's own user where that is not root"],
  ],
  // Files.
  "uploads above 18 KB vanished": [
    [`${SDK}/files.test.ts`, "bytes come back as they were written, at all sizes around the wire's parts"],
  ],
  "sub-folders dropped": [[PYTHON, "test_folders_go_up_and_down_with_modes_and_links"]],
  "a file visible before it was complete": [
    [FILES, "a file is not visible, nor changed, before its write is finished"],
  ],
  "mode, owner and symlinks lost": [
    [TAR, "a tree comes back with modes, times, links, long and odd names"],
    ["agent/files/owner.test.ts", "of files, folders and links comes back with a tree where it is asked for"],
    ["agent/files/owner.test.ts", "of a file that is rewritten stays, as its mode does"],
  ],
  "unpacking left its target": [
    [TAR, "a file entry replaces a symlink and another name of a file, and writes through neither"],
    ["sdk/python/tests/test_garbage.py", "test_an_archive_cannot_leave_its_folder"],
  ],
  "a folder deleted through a symlink": [
    [FILES, "removal takes links themselves, never what they lead to"],
    [FILES, "a folder swapped for a symlink while its tree is removed leads nowhere"],
  ],
};

stillTested(GUARDS);
