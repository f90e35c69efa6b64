import { notifications } from "@mantine/notifications";
import { render } from "@testing-library/react";

import { createAppQueryClient } from "@/api/query-client";
import { App } from "@/app";
import { toastFailure } from "@/components/feedback/toasts";

/** The whole application at an address, as main.tsx puts it together. */
export function renderApp(address: string) {
  notifications.clean();
  window.history.replaceState(null, "", address);
  const queryClient = createAppQueryClient(toastFailure);
  return render(<App queryClient={queryClient} />);
}
