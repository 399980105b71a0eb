// Preloaded into an MCP server that is spawned while its browser starts: loads the server's code, which takes
// longer than the browser, and then waits for the file that PEAKS_DOOR_AWAITED names. What is in it (a JSON
// list) is the end of the command line.
import { existsSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { setTimeout as pause } from 'node:timers/promises';

const file = process.env.PEAKS_DOOR_AWAITED;

if (file) {
  // The owner is gone: nothing will come any more.
  const leave = () => process.exit(0);
  process.stdin.once('end', leave).once('close', leave).resume();
  try {
    const load = createRequire(process.argv[1]);
    load('./lib/bootstrap');
    load('./lib/coreBundle');
  } catch {
    // Another version of Playwright keeps it elsewhere, and loads it itself.
  }
  while (!existsSync(file)) await pause(2);
  process.argv.push(...JSON.parse(readFileSync(file, 'utf8')));
  process.stdin.off('end', leave).off('close', leave);
}
