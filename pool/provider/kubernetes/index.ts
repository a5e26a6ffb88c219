// The kubernetes provider's face.
export { clusterIsNamed } from "./api/access.ts";
export { diagnose } from "./doctor.ts";
export { createKubernetesProvider, type KubernetesProvider } from "./provider.ts";
export { KubernetesSettings } from "./settings.ts";
