// What the server refuses, and what is said to whom it concerns.
import type { NatsError } from "nats/lib/nats-base-client/core.js";
import { PermissionDeniedError } from "../contract/core.ts";

export interface RefusedSubject {
  operation: "publish" | "subscribe";
  subject: string;
}

export type Complaint =
  | { about: "credential" }
  /** Said to one whose process stood still, with the cut: what follows is a reconnect as any other. */
  | { about: "stillness" }
  | ({ about: "subject" } & RefusedSubject)
  /** A further subscription, of which it says nothing else. The connection goes on. */
  | { about: "number of subscriptions" }
  | { about: "anything else" };

/** What an error is about that the server has told. */
export function complaintOf(error: NatsError): Complaint {
  if (error.isAuthError() || /authentication revoked/i.test(error.message)) return { about: "credential" };
  if (/stale connection/i.test(error.message)) return { about: "stillness" };
  if (/maximum subscriptions exceeded/i.test(error.message)) return { about: "number of subscriptions" };
  const [, operation, subject] =
    /(Publish|Subscription)(?: with .*)? to "([^"]+)"/i.exec(error.message) ?? [];
  if (!error.isPermissionError() || operation === undefined || subject === undefined)
    return { about: "anything else" };
  const publish = operation.toLowerCase() === "publish";
  return { about: "subject", operation: publish ? "publish" : "subscribe", subject };
}

export const credentialRefused = (why: string): PermissionDeniedError =>
  new PermissionDeniedError(`the server refuses the credential: ${why}`, { reason: "credential" });

export const subjectRefused = ({ operation, subject }: RefusedSubject): PermissionDeniedError =>
  new PermissionDeniedError(
    `this credential may not ${operation === "publish" ? "publish to" : "subscribe"} ${subject}`,
    { reason: operation },
  );

/** `subject`: undefined where it is not known. */
export const tooManySubscriptions = (subject?: string): PermissionDeniedError =>
  new PermissionDeniedError(
    `this connection may not subscribe ${subject ?? "more"}: the server says maximum subscriptions exceeded`,
    { reason: "subscribe" },
  );

/** Known beforehand: of the server's two refusals the first would be about the answers' subject. */
export const observerAsks = (): PermissionDeniedError =>
  new PermissionDeniedError("this credential is an observer's: it may listen to events, and ask nothing", {
    reason: "publish",
  });
