import { Button, FileButton, Text } from "@mantine/core";
import { useState, type DragEvent } from "react";

import { toastFailure } from "@/components/feedback/toasts";

import { droppedFiles } from "./dropped";

interface DropZoneProps {
  onFiles: (files: readonly File[]) => void;
  isSmall: boolean;
}

/** Takes a dropped folder or its files; the button does the same for whoever doesn't drag. */
export function DropZone({ onFiles, isSmall }: DropZoneProps) {
  const [isOver, setOver] = useState(false);

  function drop(event: DragEvent): void {
    event.preventDefault();
    setOver(false);
    droppedFiles(event.dataTransfer).then(onFiles).catch(toastFailure);
  }

  return (
    <div
      className="drop-zone"
      data-testid="drop-zone"
      data-over={isOver || undefined}
      data-small={isSmall || undefined}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => {
        setOver(false);
      }}
      onDrop={drop}
    >
      <Text fw={600}>{isSmall ? "Drop more files here" : "Drop the folder that PEFT saved, or its files"}</Text>
      {!isSmall && (
        <Text fz="sm" c="dimmed" maw={520}>
          adapter_config.json and adapter_model.safetensors, or its shards with their index. An upload that broke off goes
          on where it stopped when you drop the same files again.
        </Text>
      )}
      <FileButton multiple onChange={onFiles}>
        {(props) => (
          <Button {...props} variant="default">
            Choose files
          </Button>
        )}
      </FileButton>
    </div>
  );
}
