// The kubernetes provider's face.
export { createKubernetesProvider, type KubernetesProvider } from "./provider.ts";
export { KubernetesSettings } from "./settings.ts";
