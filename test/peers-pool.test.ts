// What other systems of this kind got wrong in making sandboxes, giving them out and cleaning up behind them, and which
// test keeps it from happening here.
import { type Guards, stillTested } from "./guards.ts";

const ENDPOINT = "broker/endpoint/endpoint.test.ts";
const CONTRACT = "pool/provider/contract.test-suite.ts";
const STEP = "pool/lifecycle/step.test.ts";
const ACQUIRE = "pool/service/acquire.test.ts";
const LEASES = "pool/service/leases.test.ts";
const FAIR = "pool/service/fairness.test.ts";
const RECOVERY = "pool/service/recovery.test.ts";
const CLIENTS = "test/chaos/clients.test.ts";
const FAILURES = "test/cluster/api/failures.test.ts";
const CLUSTER = "test/e2e-cluster/faults.test.ts";

const GUARDS: Guards = {
  // Readiness.
  "said ready before a command could run": [
    [ENDPOINT, "a request sent at the word ready finds the sandbox listening"],
    [
      "pool/provider/simulated/simulated.test.ts",
      "200 virtual sandboxes boot, answer as themselves, and are gone",
    ],
  ],
  "never said ready though it ran": [
    [ENDPOINT, "ready is repeated until the pool's first word, and no longer"],
    [RECOVERY, "a daemon that became ready while no pool was there is granted by the next one"],
    [ACQUIRE, "a sandbox that never becomes ready fails its acquire in time"],
  ],
  "handed out dead": [
    [STEP, "a provider that lost it before it was ready answers the acquire with a reason"],
    ["pool/service/simulated.test.ts", "a daemon that crashes is lost at once, and its sandbox is removed"],
  ],
  // The pool.
  "one sandbox for two, two sandboxes for one": [
    ["pool/lifecycle/random.test.ts", "no order of events breaks the rules of a sandbox's life"],
    [ACQUIRE, "the same acquire twice, at once and later, is one sandbox with one grant"],
    [CONTRACT, "creating the same name again, at once or later, makes no second sandbox"],
    ["test/bench/burst.test.ts", "none is lost or given twice, each costs two writes at most"],
  ],
  "more were made than were asked for, creates retried without end": [
    [RECOVERY, "a pool killed in the middle of a burst loses none, doubles none, and leaves none behind"],
    [ACQUIRE, "a create that fails is answered with the provider's error, and removed"],
    ["pool/service/choice.test.ts", "only what surely made nothing goes to another provider"],
    [FAILURES, "an API server that is frozen in a burst: each create ends well, once, and the watch goes on"],
  ],
  "a changed template killed what lived": [
    ["test/e2e-cluster/upgrade.test.ts", "a live sandbox goes on with its daemon, its shell and its command"],
  ],
  "used sandboxes handed out as fresh after a restart": [
    [
      RECOVERY,
      "what was lost, unconfirmed or expired while no pool was there is taken back, the rest works on",
    ],
    [STEP, "after the end it hears why, and no second sandbox comes of it"],
  ],
  "a renewal that raced the end left an orphan": [
    ["pool/runs/run.test.ts", "a run lapses at its time, not a millisecond before"],
    [LEASES, "one renewal keeps all of a run past its lease, and each daemon hears of it"],
    [
      "sdk/typescript/lease.test.ts",
      "a run that the pool does not know any more loses its sandboxes here too",
    ],
  ],
  "data of the one before visible to the next": [
    [
      "pool/provider/local/isolation.test.ts",
      "what it writes, it alone sees; the machine's files never change",
    ],
    ["pool/provider/local/image/image.test.ts", "layers are unpacked once and shared"],
  ],
  "a missing image or quota came as a general time-out": [
    [CLUSTER, "a namespace whose quota is used up refuses with QuotaExceededError, at once"],
    ["test/e2e-cluster/trajectory.test.ts", "an image that does not exist is an ImageError"],
    [
      CONTRACT,
      "an image that does not exist is an ImageError, by validate and by create, and leaves nothing",
    ],
  ],
  "what cannot succeed waited for ever": [
    [ACQUIRE, "a provider that says it will not start ends the wait at once, with its word"],
    [ACQUIRE, "an acquire that waits too long says where it stood, and leaves nothing"],
    [FAILURES, "a sandbox that no node takes fails with the scheduler's own words, after its patience"],
  ],
  // Cleanup.
  "a delete that raced the create left orphans": [
    [CONTRACT, "remove during create wins"],
    [CONTRACT, "a create that is aborted midway leaves nothing once removed"],
    [STEP, "a create that ends after its time-out is removed again before it counts as gone"],
  ],
  "a killed client left orphans": [
    [CLIENTS, "killed in the middle of its burst leaves nothing of what was granted, booting or queued"],
    [CLUSTER, "a client that is killed in its burst leaves no pod beyond its lease and ten seconds"],
    ["test/bench/burst.test.ts", "the sandboxes of clients that are killed all end"],
  ],
  "no longest life by default": [
    [LEASES, "a sandbox ends at its longest life, whatever is renewed"],
    [CONTRACT, "no sandbox outlives its longest life"],
  ],
  "what others deleted stayed claimed": [
    ["test/e2e-cluster/trajectory.test.ts", "a pod that somebody deletes is lost, by that name"],
  ],
  "a finalizer that sticks": [
    [FAILURES, "a pod that a finalizer holds is told as stuck, and goes once that is gone"],
    [STEP, "a failed removal is tried again, later each time, and never dropped"],
  ],
  // Bursts.
  "as many started at once as were asked for": [
    [ACQUIRE, "no more boot at once than the bound, and all of them come in the end"],
    ["pool/pace/pace.test.ts", "the bound on booting holds however many tokens there are, and costs none"],
  ],
  "all came back at the same moment": [
    ["broker/link/reconnect.test.ts", "is short at first, then grows to its bound, and is spread"],
    ["sdk/python/tests/test_handles.py", "test_renewals_of_a_burst_spread_out"],
    ["pool/provider/kubernetes/api/transport.test.ts", "never at the same time for all"],
  ],
  "one that is slow or hangs held up all": [
    [FAIR, "a run whose sandboxes hang in their boot keeps no other from beginning"],
    [
      FAIR,
      "a tenant whose sandboxes hang in their boot, in however many runs, keeps no other tenant from beginning",
    ],
    [
      "pool/provider/kubernetes/api/transport.test.ts",
      "a server that is frozen ends no request later than its time-out",
    ],
  ],
  "sandboxes that failed counted as commands that failed": [
    ["sdk/typescript/vectors.test.ts", "a signal or a lost limit is never a number"],
    ["test/chaos/daemons.test.ts", "while a command runs: it ends as lost, never as an exit code"],
  ],
  // Security.
  "a volume led to the machine's services": [
    [
      "pool/provider/local/volumes.test.ts",
      "a volume is not of /run, where services' sockets are, by whatever path",
    ],
    [
      "pool/provider/kubernetes/spec.test.ts",
      "the node's network and folders, unless this pool's settings allow them",
    ],
  ],
  "secrets in the pool's logs": [
    ["pool/main.test.ts", "it starts, answers, logs no secret, and stops at SIGTERM"],
  ],
  "one sandbox reached into another": [
    ["test/integration/confinement.test.ts", "their processes cannot be seen or signaled"],
    ["test/integration/confinement-credential.test.ts", "to hear or send requests to another sandbox"],
  ],
  "the task reached the network, and looked up its solution": [
    [
      "pool/provider/local/isolation.test.ts",
      "with network none it reaches neither the machine's ports nor anything else",
    ],
    ["test/e2e-cluster/network.test.ts", "and nothing else: API server, node, metadata, another sandbox"],
  ],
};

stillTested(GUARDS);
