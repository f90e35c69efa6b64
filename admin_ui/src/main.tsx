import "@mantine/core/styles.css";
import "@mantine/notifications/styles.css";
import "./app.css";

import { StrictMode } from "react";
import { createRoot } from "react-dom/client";

import { createAppQueryClient } from "@/api/query-client";
import { toastFailure } from "@/components/feedback/toasts";

import { App } from "./app";

const root = document.getElementById("root");
if (root === null) throw new Error("index.html has no #root");

createRoot(root).render(
  <StrictMode>
    <App queryClient={createAppQueryClient(toastFailure)} />
  </StrictMode>,
);
