// A client in a process of its own, to be killed:   client.ts URL CREDENTIALS CA LEASE_MS IMAGE COUNT
// Says `granted` when it holds all, and then waits.
import { connect } from "../../sdk/typescript/mod.ts";

const [url = "", credentials = "", ca = "", lease = "", image = "", count = ""] = process.argv.slice(2);
const mesh = await connect({ url, credentials, ca, lease: Number(lease), handleSignals: false });
await Promise.all(Array.from({ length: Number(count) }, () => mesh.acquire({ image, timeout: "2m" })));
process.stdout.write("granted\n");
setInterval(() => undefined, 1 << 30);
