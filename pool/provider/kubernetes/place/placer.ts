// Direct placement: the pool names the node itself, of those labelled for it, and hears whether kubelet takes the pod. It
// saves the scheduler's queue and the binding's write. What others run on these nodes is not known here: kubelet counts,
// and refuses.
import type { V1Pod } from "@kubernetes/client-node";
import { Collection } from "../api/collection.ts";
import type { Transport } from "../api/transport.ts";
import type { Change } from "../informer.ts";
import type { PodView } from "../observe.ts";
import { type Log, Reflector } from "../reflect.ts";
import { admissionOf } from "./admission.ts";
import { type Candidate, candidateOf, choose, NodeView } from "./choose.ts";
import { demandOf } from "./demand.ts";
import { type Amounts, minus, plus } from "./quantity.ts";

/** A node whose kubelet refused one is left to the scheduler for so long: something runs there that we do not count. */
const REFUSED_MS = 30_000;
/** What kubelet has not refused by then it will hardly refuse: the create answers, and the daemon's word decides. */
const ADMIT_MS = 10_000;
const NONE: Amounts = {};

interface Placed {
  node: string;
  requests: Amounts;
}

export type Admission = "taken" | "refused" | "unknown";

export class Placer {
  readonly #reflector: Reflector<NodeView>;
  readonly #nodes = new Map<string, Candidate>();
  readonly #refusedAt = new Map<string, number>();
  readonly #placed = new Map<string, Placed>();
  readonly #used = new Map<string, Amounts>();
  readonly #waiting = new Map<string, (admission: Admission) => void>();

  constructor(transport: Transport, selector: string, log: Log) {
    const nodes = new Collection(transport, "/api/v1/nodes", selector, NodeView, "nodes");
    this.#reflector = new Reflector(
      nodes,
      {
        listed: (all) => {
          this.#nodes.clear();
          for (const node of all) this.#heed(node);
        },
        changed: (type, node) => {
          if (type === "DELETED") this.#nodes.delete(node.metadata.name);
          else this.#heed(node);
        },
      },
      log,
      "nodes",
    );
  }

  /** Resolves when the nodes are known. */
  start(): Promise<void> {
    return this.#reflector.start();
  }

  async stop(): Promise<void> {
    for (const settle of this.#waiting.values()) settle("unknown");
    await this.#reflector.stop();
  }

  #heed(node: NodeView): void {
    const { name } = node.metadata;
    const candidate = candidateOf(node, this.#used.get(name) ?? NONE);
    if (candidate === undefined) this.#nodes.delete(name);
    else this.#nodes.set(name, candidate);
  }

  /** The node that is to take it, whose room it has from now on; undefined: the scheduler is to find one. */
  place(sandbox: string, pod: V1Pod): string | undefined {
    const demand = demandOf(pod);
    if (demand === undefined) return undefined;
    const now = performance.now();
    const willing = [...this.#nodes.values()].filter(
      ({ name }) => now - (this.#refusedAt.get(name) ?? Number.NEGATIVE_INFINITY) > REFUSED_MS,
    );
    const node = choose(willing, demand)?.name;
    if (node !== undefined) this.#take(sandbox, { node, requests: demand.requests });
    return node;
  }

  #take(sandbox: string, placed: Placed): void {
    this.#placed.set(sandbox, placed);
    this.#use(placed.node, plus(this.#used.get(placed.node) ?? NONE, placed.requests));
  }

  /** It has no room on a node any more. */
  release(sandbox: string): void {
    const placed = this.#placed.get(sandbox);
    if (placed === undefined) return;
    this.#placed.delete(sandbox);
    this.#use(placed.node, minus(this.#used.get(placed.node) ?? NONE, placed.requests));
  }

  #use(node: string, used: Amounts): void {
    this.#used.set(node, used);
    const candidate = this.#nodes.get(node);
    if (candidate !== undefined) candidate.used = used;
  }

  /** Whether its node takes the pod; to be asked right after it was placed. */
  admission(sandbox: string): Promise<Admission> {
    return new Promise((resolve) => {
      const settle = (admission: Admission): void => {
        clearTimeout(timer);
        this.#waiting.delete(sandbox);
        resolve(admission);
      };
      const timer = setTimeout(() => settle("unknown"), ADMIT_MS);
      this.#waiting.set(sandbox, settle);
    });
  }

  /** Nobody wants to know any more: it is to be removed. */
  giveUp(sandbox: string): void {
    this.#waiting.get(sandbox)?.("unknown");
  }

  /** true: kubelet refused one that was just placed, which nobody else is to hear. */
  heed({ type, pod }: Change): boolean {
    const { name } = pod.metadata;
    const settle = this.#waiting.get(name);
    if (type === "gone") {
      this.release(name);
      settle?.("unknown");
      return false;
    }
    if (!this.#placed.has(name)) this.#found(pod);
    const admission = admissionOf(pod);
    if (settle === undefined || admission === undefined) return false;
    if (admission === "refused") {
      const node = this.#placed.get(name)?.node;
      if (node !== undefined) this.#refusedAt.set(node, performance.now());
      this.release(name);
    }
    settle(admission);
    return admission === "refused";
  }

  /** One that the scheduler placed, or an earlier process: what it asks for is not known here, but it is one. */
  #found({ metadata, spec }: PodView): void {
    if (spec.nodeName !== undefined)
      this.#take(metadata.name, { node: spec.nodeName, requests: { pods: 1 } });
  }
}
