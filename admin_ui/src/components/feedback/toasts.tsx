import { Text } from "@mantine/core";
import { notifications } from "@mantine/notifications";

import { asApiError } from "@/api/errors";

/** A change was refused: the API's own sentence, and the id to find it by in the server's log. */
export function toastFailure(error: unknown): void {
  const { message, requestId } = asApiError(error);
  notifications.show({
    color: "red",
    title: message,
    message: requestId === null ? null : (
      <Text fz="xs" ff="monospace" component="span" c="dimmed">
        Request {requestId}
      </Text>
    ),
    autoClose: 10_000,
    closeButtonProps: { "aria-label": "Dismiss" },
  });
}

export function toastDone(message: string): void {
  notifications.show({ color: "wing", message, closeButtonProps: { "aria-label": "Dismiss" } });
}
