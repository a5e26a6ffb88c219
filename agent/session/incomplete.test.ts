import { expect, test } from "bun:test";
import { mayBeIncomplete } from "./incomplete.ts";

test("a plain command is not worth a question to the shell, however it is quoted", () => {
  for (const text of [
    "ls -la /tmp | head -3",
    `grep -n 'it is "quoted"' file && echo "don't"\\'`,
    'for f in *.py; do wc -l "$f"; done',
    "if [ -e x ]; then echo $(cat x); fi # can't fail",
    "cat > f.py <<'EOF'\nprint('it is')\nEOF",
    "cat <<A <<-B\n1\nA\n\t2\n\tB",
    "cat <<< word",
    "",
  ])
    expect([text, mayBeIncomplete(text)]).toEqual([text, false]);
});

test("what may be open at its end is", () => {
  for (const text of [
    "echo 'open",
    `echo 'a"b' "open`,
    "echo $(open",
    "if true; then",
    "while read x; do",
    "case x in",
    "make |",
    "make &&\n",
    "cat > f <<EOF\nprint(1)\n",
    "cat <<'A B'\nA  B",
  ])
    expect([text, mayBeIncomplete(text)]).toEqual([text, true]);
});

test("a megabyte of text is looked through at once", () => {
  const text = `cat > f <<'EOF'\n${"it's <<x (if \\".repeat(70_000)}\nEOF\n`;
  const began = performance.now();
  mayBeIncomplete(text);
  expect(performance.now() - began).toBeLessThan(2_000);
});
