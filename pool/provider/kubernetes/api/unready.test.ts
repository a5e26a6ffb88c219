import { expect, test } from "bun:test";
import { UNREADY_MS, Unready } from "./unready.ts";

const CREATE = "create pods";
/** As an API server words them. */
const noRight = {
  message:
    'pods is forbidden: User "system:serviceaccount:sandmesh:pool" cannot create resource "pods" in API group "" in the namespace "sandboxes": RBAC: role.rbac.authorization.k8s.io "pool" not found',
};
const notReady = { message: 'pods "sb-1" is forbidden: not yet ready to handle request' };
const quota = { message: 'pods "sb-1" is forbidden: exceeded quota: team, requested: pods=1' };

function clocked() {
  let at = 0;
  const unready = new Unready(() => at);
  return {
    refused: (body: object, right = CREATE) => unready.mayPass(right, 403, body),
    allowed: (right = CREATE) => expect(unready.mayPass(right, 201, {})).toBe(false),
    pass: (ms: number) => {
      at += ms;
    },
  };
}

test("what was allowed before may be so again: a server that has just started knows no roles", () => {
  const { refused, allowed } = clocked();
  allowed();
  expect(refused(noRight)).toBe(true);
});

test("what was never allowed is forbidden at once, also beside other rights", () => {
  const { refused, allowed } = clocked();
  allowed("list pods");
  expect(refused(noRight)).toBe(false);
});

test("a right that was taken away is told as that in the end, and then at once for all, until it is given again", () => {
  const { refused, allowed, pass } = clocked();
  allowed();
  expect(refused(noRight)).toBe(true);
  pass(UNREADY_MS);
  expect(refused(noRight)).toBe(false);
  expect(refused(noRight)).toBe(false);
  allowed();
  expect(refused(noRight)).toBe(true);
});

test("admission that is not ready yet is waited for, also by the first request there is", () => {
  const { refused, pass } = clocked();
  expect(refused(notReady)).toBe(true);
  pass(UNREADY_MS);
  expect(refused(notReady)).toBe(false);
});

test("a quota that is used up, and what is no refusal in the server's words, is an answer", () => {
  const { refused, allowed } = clocked();
  allowed();
  for (const body of [quota, {}, { message: "no" }]) expect(refused(body)).toBe(false);
});
