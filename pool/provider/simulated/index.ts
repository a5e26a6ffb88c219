// Virtual sandboxes for scale and chaos: the provider, and what they are made of.
export { FateSettings } from "./fate.ts";
export { createSimulatedProvider, SimulatedProvider, SimulatedSettings } from "./provider.ts";
