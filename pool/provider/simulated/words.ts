// A shell line as far as a virtual sandbox understands one: words, quotes, and `;`, `&&`, `||` between commands. Pure.

export interface Simple {
  argv: string[];
  /** When it runs, by how the one before it ended. */
  when: "always" | "success" | "failure";
}

const JOINTS: Record<string, Simple["when"]> = {
  ";": "always",
  "\n": "always",
  "&&": "success",
  "||": "failure",
};
/** What would mean something to a real shell, and is not understood here. */
const SPECIAL = new Set("|&<>()$`*?[]{}~#!\\");

/** Throws an Error in words for what is not understood: nothing of the line runs then. */
export function parseLine(line: string): Simple[] {
  const commands: Simple[] = [];
  let argv: string[] = [];
  let word: string | undefined;
  let when: Simple["when"] = "always";
  const endWord = () => {
    if (word !== undefined) argv.push(word);
    word = undefined;
  };
  const endCommand = (next: Simple["when"]) => {
    endWord();
    if (argv.length > 0) commands.push({ argv, when });
    else if (next !== "always") throw new Error("syntax error: a command is missing");
    argv = [];
    when = next;
  };
  for (let i = 0; i < line.length; i++) {
    const char = line.charAt(i);
    const joint = JOINTS[line.slice(i, i + 2)] ?? JOINTS[char];
    if (joint !== undefined) {
      endCommand(joint);
      if (JOINTS[char] === undefined) i++;
    } else if (char === " " || char === "\t") {
      endWord();
    } else if (char === "'" || char === '"') {
      const close = line.indexOf(char, i + 1);
      if (close < 0) throw new Error(`syntax error: unterminated ${char}`);
      const quoted = line.slice(i + 1, close);
      if (char === '"' && /[$`\\]/.test(quoted)) throw new Error("a virtual sandbox expands nothing");
      word = (word ?? "") + quoted;
      i = close;
    } else if (SPECIAL.has(char)) {
      throw new Error(`a virtual sandbox does not understand ${char}`);
    } else {
      word = (word ?? "") + char;
    }
  }
  if (when !== "always" && word === undefined && argv.length === 0) {
    throw new Error("syntax error: a command is missing");
  }
  endCommand("always");
  return commands;
}
