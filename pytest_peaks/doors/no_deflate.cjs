// Preloaded into Playwright's driver: a connection to a browser on this machine is not compressed. Playwright's
// WebSocket client always asks for it and Chromium always agrees, which takes node half as long again for every message.
'use strict';
const http = require('http');

const request = http.request;
const LOOPBACK = ['127.0.0.1', 'localhost', '::1'];

http.request = function (options, ...rest) {
  const headers = options && options.headers;
  if (headers && LOOPBACK.includes(options.host) && String(options.path).startsWith('/devtools/'))
    delete headers['Sec-WebSocket-Extensions'];
  return request.call(this, options, ...rest);
};

// What the driver starts is not concerned.
const before = process.env.PEAKS_NODE_OPTIONS;
delete process.env.PEAKS_NODE_OPTIONS;
if (before) process.env.NODE_OPTIONS = before;
else delete process.env.NODE_OPTIONS;
