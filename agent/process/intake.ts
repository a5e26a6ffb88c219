// Sockets that the engine reads in the runtime's stead (broker/link/intake.ts).
import type { Socket } from "node:net";
import type { OpenIntake } from "../../broker/link/intake.ts";
import type { Engine } from "../native/engine.ts";

/** The runtime's side of a socket. `Socket.pause` would let it read on until its buffer is full, and be overtaken. */
interface Handle {
  readonly fd: number;
  pause(): void;
  resume(): void;
}

const handleOf = (socket: Socket): Handle | null | undefined =>
  (socket as unknown as { _handle?: Handle | null })._handle;

export function intakeOf(engine: Engine): OpenIntake {
  return (socket, came) => {
    const handle = handleOf(socket);
    if (typeof handle?.fd !== "number" || handle.fd < 0) return undefined;
    const intake = engine.waits.intake(handle.fd, came);
    if (intake === undefined) return undefined;
    handle.pause();
    return {
      read: intake.read,
      close: () => {
        intake.close();
        handleOf(socket)?.resume();
      },
    };
  };
}
