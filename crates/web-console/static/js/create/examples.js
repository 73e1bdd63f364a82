// What the form begins with.

import { ownNamespace } from "../session.js";

export function emptyForm() {
  return {
    name: "", namespace: ownNamespace(), source: "containerDisk", image: "", size: "", preference: "", cores: "1",
    memory: "1Gi", strategy: "Always", userData: "",
  };
}
