// The cluster's doctor against a server of HTTP that answers as an API server does in each case, on real sockets. That a
// real one answers so is test/cluster's to show.
import { expect, test } from "bun:test";
import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";
import type { V1Pod } from "@kubernetes/client-node";
import { type ClusterFinding, diagnose } from "./doctor.ts";

interface Cluster {
  level?: string;
  /** `verb resource` that nobody has. */
  lacks?: string[];
  imageVolumes?: boolean;
  namespaceHidden?: boolean;
}

interface Review {
  spec: { resourceAttributes: { verb: string; resource: string; namespace?: string } };
}

const status = (code: number, reason: string, message: string) => ({
  code,
  body: { kind: "Status", reason, message },
});

function admit(pod: V1Pod, { level = "privileged", imageVolumes = true }: Cluster) {
  const volume = pod.spec?.volumes?.[0];
  if (volume?.image !== undefined && !imageVolumes) {
    return status(422, "Invalid", "spec.volumes[0]: Required value: must specify a volume type");
  }
  const root = pod.spec?.securityContext?.runAsNonRoot !== true;
  const refused =
    (level !== "privileged" && volume?.hostPath !== undefined) || (level === "restricted" && root);
  return refused
    ? status(403, "Forbidden", `pods "x" is forbidden: violates PodSecurity "${level}:latest"`)
    : { code: 201, body: pod };
}

/** What the doctor finds, and every path that it wrote to. */
async function examine(cluster: Cluster): Promise<{ found: Map<string, ClusterFinding>; written: string[] }> {
  const written: string[] = [];
  const answer = async (request: IncomingMessage) => {
    const url = request.url ?? "";
    if (request.method === "POST") written.push(url);
    if (url === "/version") return { code: 200, body: { gitVersion: "v1.35.0" } };
    if (url === "/api/v1/namespaces/boxes") {
      if (cluster.namespaceHidden === true) return status(403, "Forbidden", "cannot get namespaces");
      const labels = { "pod-security.kubernetes.io/enforce": cluster.level ?? "privileged" };
      return { code: 200, body: { metadata: { labels } } };
    }
    const body: unknown = await json(request);
    if (!url.includes("selfsubjectaccessreviews")) return admit(body as V1Pod, cluster);
    const { verb, resource, namespace } = (body as Review).spec.resourceAttributes;
    if (resource === "pods") expect(namespace).toBe("boxes");
    const allowed = cluster.lacks?.includes(`${verb} ${resource}`) !== true;
    return { code: 201, body: { status: { allowed } } };
  };
  const server = createServer((request, response) => {
    void answer(request).then(({ code, body }) => {
      response.writeHead(code, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const found = await diagnose({
      server: new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}`),
      namespace: "boxes",
      proxied: false,
      credentials: async () => ({}),
      close: () => undefined,
    });
    return { found: new Map(found.map((each) => [each.check.replace(/^kubernetes ?/, ""), each])), written };
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test("a cluster that can all is said to, with its version, and nothing is made in it", async () => {
  const { found, written } = await examine({});
  expect([...found.values()].filter(({ ok }) => !ok)).toEqual([]);
  expect(found.get("")?.detail).toStartWith("v1.35.0 at 127.0.0.1:");
  expect([...found.keys()]).toEqual([
    "",
    "rights",
    "direct",
    "pod security",
    "daemon by image",
    "daemon by hostPath",
    "daemon by init",
  ]);
  for (const path of written) expect(path).toMatch(/selfsubjectaccessreviews$|dryRun=All$/);
});

test("rights that are missing are named, those of placement direct apart", async () => {
  const { found } = await examine({ lacks: ["deletecollection pods", "watch pods", "watch nodes"] });
  expect(found.get("rights")).toMatchObject({ ok: false });
  expect(found.get("rights")?.detail).toContain("deletecollection, watch, in namespace boxes");
  expect(found.get("direct")).toMatchObject({ ok: false });
  expect((await examine({ lacks: ["watch nodes"] })).found.get("rights")?.ok).toBe(true);
});

test("each way in is told by what the namespace's Pod Security level admits of it", async () => {
  const waysOf = async (level: string) => {
    const { found } = await examine({ level });
    expect(found.get("pod security")?.detail).toBe(`namespace boxes: enforces ${level}`);
    return ["image", "hostPath", "init"].map((way) => found.get(`daemon by ${way}`));
  };
  expect((await waysOf("privileged")).map((way) => way?.ok)).toEqual([true, true, true]);
  const [image, hostPath, init] = await waysOf("baseline");
  expect([image?.ok, hostPath?.ok, init?.ok]).toEqual([true, false, true]);
  expect([hostPath?.detail, hostPath?.fix].join()).toMatch(
    /violates PodSecurity "baseline.*enforce=privileged/,
  );
  expect(init?.detail).toStartWith("admitted; ");
  const restricted = await waysOf("restricted");
  expect(restricted.map((way) => way?.ok)).toEqual([true, false, true]);
  expect(restricted[0]?.detail).toContain("capabilities strict and runAsNonRoot");
});

test("an API server that drops image volumes is told apart from one that has them", async () => {
  const way = (await examine({ imageVolumes: false })).found.get("daemon by image");
  expect([way?.ok, way?.fix?.includes("ImageVolume")]).toEqual([false, true]);
});

test("what may not be read is said, and costs no other finding; who is away is one finding", async () => {
  const { found } = await examine({ namespaceHidden: true });
  expect(found.get("pod security")?.detail).toContain("cannot be told: GET /api/v1/namespaces/boxes");
  expect(found.get("daemon by init")?.ok).toBe(true);
  const away = await diagnose({
    server: new URL("http://127.0.0.1:1"),
    proxied: false,
    credentials: async () => ({}),
    close: () => undefined,
  });
  expect(away).toMatchObject([{ check: "kubernetes", ok: false }]);
});
