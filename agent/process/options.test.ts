// What a provider or a person gives the daemon on its command line, and what it must refuse to guess about.
import { expect, test } from "bun:test";
import { InvalidRequestError } from "../../broker/contract/index.ts";
import { readArguments } from "./options.ts";

const read = (...args: string[]) => readArguments(args, ["log", "log-level"], ["version"]);

test("values stand behind the name or after =, also empty, with = or dashes in them", () => {
  expect(read("--log", "/a b", "--log-level=warn", "--version")).toEqual({
    texts: { log: "/a b", "log-level": "warn" },
    flags: new Set(["version"]),
  });
  expect(read("--log=a=b\nc").texts.log).toBe("a=b\nc");
  expect(read("--log=").texts.log).toBe("");
  expect(read("--log", "--version")).toEqual({ texts: { log: "--version" }, flags: new Set() });
  expect(read("--log", "a", "--log", "b").texts.log).toBe("b");
  expect(read()).toEqual({ texts: {}, flags: new Set() });
});

test("what is not known or not whole is refused", () => {
  for (const args of [["--log"], ["--no-such"], ["--version=1"], ["file"], ["-v"], ["--"], ["--log-"], [""]])
    expect(() => read(...args)).toThrow(InvalidRequestError);
});
