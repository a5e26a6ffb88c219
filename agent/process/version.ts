// The daemon's version: the package's.
import { version } from "../../package.json" with { type: "json" };

export const DAEMON_VERSION: string = version;
