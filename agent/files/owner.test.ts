// Whose a file is: kept where a file is rewritten, told by a tree's archive, and taken from it where that is asked for.
import { afterEach, describe, expect, test } from "bun:test";
import { chmodSync, chownSync, lchownSync, lstatSync, mkdirSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { cleanUp, drain, fill, scene, written } from "./testing.ts";

afterEach(cleanUp);

const owners = (root: string, names: readonly string[]): [string, number, number, string][] =>
  names.map((name) => {
    const { uid, gid, mode } = lstatSync(join(root, name));
    return [name, uid, gid, (mode & 0o7777).toString(8)];
  });

// Only root may give files away.
describe.if(process.getuid?.() === 0)("the owner", () => {
  test("of files, folders and links comes back with a tree where it is asked for, and is the unpacker's otherwise", async () => {
    const { root, files } = scene();
    const names = ["", "/folder", "/folder/set-uid", "/link"];
    mkdirSync(join(root, "from/folder"), { recursive: true });
    writeFileSync(join(root, "from/folder/set-uid"), "x");
    symlinkSync("folder/set-uid", join(root, "from/link"));
    for (const [i, name] of names.entries()) lchownSync(join(root, `from${name}`), 4321 + i, 8765 + i);
    // After the owner, whose change clears it.
    chmodSync(join(root, "from/folder/set-uid"), 0o4750);
    const archive = await drain(await files.pack("from"));
    await fill(await files.unpack("kept", true), archive);
    const below = names.filter((name) => name !== "");
    expect(owners(join(root, "kept"), below)).toEqual(owners(join(root, "from"), below));
    await fill(await files.unpack("own", false), archive);
    for (const [name, uid, gid] of owners(join(root, "own"), below))
      expect([name, uid, gid]).toEqual([name, 0, 0]);
  });

  test("of a file that is rewritten stays, as its mode does, unless another is asked for", async () => {
    const { root, files } = scene();
    const path = join(root, "f");
    writeFileSync(path, "old");
    chownSync(path, 4321, 8765);
    chmodSync(path, 0o640);
    await fill(await files.write({ ...written, path: "f" }), Buffer.from("new"));
    expect(owners(root, ["f"])).toEqual([["f", 4321, 8765, "640"]]);
    await fill(await files.write({ ...written, path: "f", uid: 1, gid: 2 }), Buffer.from("newer"));
    expect(owners(root, ["f"])).toEqual([["f", 1, 2, "640"]]);
  });

  test.each([
    [{ gid: 2 }, [4321, 2, "640"]],
    [{ uid: 1 }, [1, 8765, "640"]],
    [{ mode: 0o600 }, [4321, 8765, "600"]],
    [{ uid: 1, gid: 2, mode: 0o600 }, [1, 2, "600"]],
    [{}, [4321, 8765, "640"]],
  ] as const)(
    "of a file that is appended to, or rewritten, becomes what is asked for: %j",
    async (asked, has) => {
      const { root, files } = scene();
      for (const append of [true, false]) {
        const path = join(root, `f-${append}`);
        writeFileSync(path, "old");
        chownSync(path, 4321, 8765);
        chmodSync(path, 0o640);
        await fill(
          await files.write({ ...written, ...asked, append, path: `f-${append}` }),
          Buffer.from("new"),
        );
        expect(owners(root, [`f-${append}`])).toEqual([[`f-${append}`, ...has]]);
      }
    },
  );
});
