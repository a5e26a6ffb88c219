import { expect, test } from "bun:test";
import { counted, jsonLine, shown, table } from "./output.ts";

test("a table is no wider than the terminal, and nothing of it is lost", () => {
  const about = "From the create to ready; an image pull is within it";
  const rows = [
    ["bootTimeoutMs", "120000", about, "SANDMESH_POOL_BOOT_TIMEOUT_MS"],
    ["\u001b[32mgreen and long enough to be broken\u001b[0m", "1", "x".repeat(90), ""],
  ];
  const text = table(["SETTING", ">DEFAULT", "ABOUT", "VARIABLE"], rows, 80);
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the escape character is what is looked for
  const lines = text.replace(/\u001b\[\d+m/g, "").split("\n");
  expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80);
  for (const word of about.split(" ")) expect(text).toContain(word);
  expect(text.replaceAll(/[^x]/g, "").length).toBeGreaterThanOrEqual(90);
  // Colours end where the line does.
  for (const line of text.split("\n"))
    expect(line.split("\u001b[32m").length).toBe(line.split("\u001b[0m").length);
});

test("a line of JSON is one line, also to who ends lines at U+2028 or U+0085, and says the same", () => {
  const value = { name: "a\u2028b\u2029c\u0085d\n\r\u000b\u000c\u001c", ü: ["漢"] };
  const line = jsonLine(value);
  expect(JSON.parse(line)).toEqual(value);
  const python = Bun.spawnSync(["python3", "-c", "import sys; print(len(sys.argv[1].splitlines()))", line]);
  expect(python.stdout.toString()).toBe("1\n");
});

test("where there is room, or no terminal, each row is one line", () => {
  expect(table(["A", ">B"], [["x".repeat(300), "1"]]).split("\n").length).toBe(2);
  expect(table(["A", ">B"], [["x", "1"]], 80)).toBe("A  B\nx  1");
});

test("wide characters take two places, and columns stay below their headings", () => {
  const lines = table(
    ["IMAGE", "RUN"],
    [
      ["漢字", "r"],
      ["x", "r"],
    ],
  ).split("\n");
  expect(lines).toEqual(["IMAGE  RUN", "漢字   r", "x      r"]);
  const narrow = table(["A", "REASON"], [["a", "漢".repeat(60)]], 40);
  expect(Math.max(...narrow.split("\n").map((line) => Bun.stringWidth(line)))).toBeLessThanOrEqual(40);
  expect(narrow.replaceAll(/[^漢]/g, "").length).toBe(60);
});

test("an id is never broken, however narrow the terminal, since it is there to be copied", () => {
  const id = "sb-7k2m9q4xw1vzt";
  const text = table(["=SANDBOX", "REASON"], [[id, "some words that are many more than fit here"]], 20);
  expect(text).toContain(id);
});

test("what came from outside cannot drive the terminal", () => {
  expect(shown("a\u001b]0;title\u0007b\u009bc\r\n\u202ed")).toBe(
    "a\\x1b]0;title\\x07b\\x9bc\\x0d\\x0a\\x202ed",
  );
  expect(shown("two\nlines", "\n")).toBe("two\nlines");
  expect(table(["A"], [["x\u001b[2Jy"], ["\u001b[31mred \u001b[2J\u001b[0m"]])).toBe(
    "A\nx\\x1b[2Jy\n\u001b[31mred \\x1b[2J\u001b[0m",
  );
});

test.each([
  [1, "sandbox", "1 sandbox"],
  [2, "sandbox", "2 sandboxes"],
  [0, "process", "0 processes"],
  [1, "lease", "1 lease"],
  [3, "mount", "3 mounts"],
])("%i %s is %s", (count, what, text) => {
  expect(counted(count, what)).toBe(text);
});
