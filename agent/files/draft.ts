// The hidden name of what is being written, in the folder where it is to appear.
import { randomBytes } from "node:crypto";

export const DRAFT_PREFIX = ".sandmesh-";

export const draftName = (): string => `${DRAFT_PREFIX}${randomBytes(9).toString("hex")}`;
