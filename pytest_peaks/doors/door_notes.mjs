// Preloaded into an MCP server: notes in the folder that PEAKS_DOOR_NOTES names when the server was last used
// (`used`, in nanoseconds of the monotonic clock) and by which clients (`clients/<mcp-session-id>`).
// hosting/use.py reads it. Nothing here may ever throw into the server.
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { Server } from 'node:http';
import { join } from 'node:path';

const folder = process.env.PEAKS_DOOR_NOTES;

if (folder) {
  const clients = join(folder, 'clients');
  const part = join(folder, `used.${process.pid}`);

  const quietly = step => {
    try {
      step();
    } catch {
      // A folder that is gone, or a full disk: the server works on.
    }
  };

  const noteUse = () =>
    quietly(() => {
      writeFileSync(part, String(process.hrtime.bigint()), { mode: 0o600 });
      renameSync(part, join(folder, 'used'));
    });

  const note = (request, response) => {
    const id = request.headers['mcp-session-id'];
    const client = /^[A-Za-z0-9-]{8,64}$/.test(id ?? '') ? join(clients, id) : undefined;
    const forget = () => client && quietly(() => rmSync(client, { force: true }));
    if (request.method === 'DELETE') forget();
    if (request.method !== 'POST' || request.headers['x-peaks']) return;
    noteUse();
    if (client) quietly(() => writeFileSync(client, '', { mode: 0o600 }));
    response.once('close', () => {
      noteUse(); // a call may take minutes
      if (response.statusCode === 404) forget();
    });
  };

  quietly(() => mkdirSync(clients, { recursive: true, mode: 0o700 }));
  const emit = Server.prototype.emit;
  Server.prototype.emit = function (event, ...values) {
    if (event === 'request') quietly(() => note(...values));
    return emit.call(this, event, ...values);
  };
}
