-- How many launches of graphs there were, how long they took, and what they have copied.
SELECT
  total(name GLOB 'Graph::*') AS launches,
  total(dur * (name GLOB 'Graph::*')) / 1e6 AS launches_ms,
  total(EXTRACT_ARG(arg_set_id, 'args.upload.bytes')) AS uploaded_bytes,
  total(EXTRACT_ARG(arg_set_id, 'args.download.bytes')) AS downloaded_bytes,
  total(EXTRACT_ARG(arg_set_id, 'args.copy.bytes')) AS copied_bytes
FROM slice
WHERE category = 'device';
