import { connect } from "../mod.ts";

await using mesh = await connect(); // the mesh that `sandmesh up` started, or SANDMESH_URL and SANDMESH_CREDS
await using box = await mesh.acquire({ image: "host", env: { GREETING: "hello" }, timeout: "2m" });

const result = await box.exec("echo $GREETING; exit 3", { timeout: "10s" });
switch (result.outcome.type) {
  case "exited":
    console.log(`exit code ${result.outcome.code}, wrote ${JSON.stringify(result.stdout.text)}`);
    break;
  case "timed_out":
    console.log(`too slow; by then it wrote ${result.stdout.bytes.length} bytes`);
    break;
  default:
    console.log(result.outcome);
}
