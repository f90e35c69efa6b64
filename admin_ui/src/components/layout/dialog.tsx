import { Modal } from "@mantine/core";
import type { ReactNode } from "react";

interface DialogProps {
  opened: boolean;
  onClose: () => void;
  title: string;
  size?: string;
  closeOnClickOutside?: boolean;
  children: ReactNode;
}

/** The kit's modal without its `<header>`, which a screen reader takes for a second banner of the page. */
export function Dialog({ opened, onClose, title, size = "md", closeOnClickOutside = true, children }: DialogProps) {
  return (
    <Modal.Root opened={opened} onClose={onClose} size={size} closeOnClickOutside={closeOnClickOutside}>
      <Modal.Overlay />
      <Modal.Content>
        <div className="dialog-title">
          <Modal.Title fw={650}>{title}</Modal.Title>
          <Modal.CloseButton aria-label="Close" />
        </div>
        <Modal.Body>{children}</Modal.Body>
      </Modal.Content>
    </Modal.Root>
  );
}
