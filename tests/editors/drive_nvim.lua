-- Drives a debug session in Neovim with nvim-dap, and writes what it has seen as JSON.
local plan = vim.fn.json_decode(table.concat(vim.fn.readfile(vim.env.PLAN), '\n'))
local dap = require('dap')
local seen = { stops = {} }

local function finish(problem)
  seen.problem = problem
  vim.fn.writefile({ vim.fn.json_encode(seen) }, plan.result)
  vim.cmd('qa!')
end

local function checked(next)
  return function(problem, response)
    if problem then finish(vim.inspect(problem)) else next(response) end
  end
end

local function locals(session, thread, next)
  session:request('stackTrace', { threadId = thread, startFrame = 0, levels = 1 }, checked(function(stack)
    local frame = stack.stackFrames[1]
    session:request('scopes', { frameId = frame.id }, checked(function(scopes)
      local reference = scopes.scopes[1].variablesReference
      session:request('variables', { variablesReference = reference }, checked(function(variables)
        local found = { line = frame.line, file = frame.source.path }
        for _, variable in ipairs(variables.variables) do found[variable.name] = variable.value end
        next(found)
      end))
    end))
  end))
end

local ends = { disconnect = function() dap.disconnect({ terminateDebuggee = false }) end, terminate = dap.terminate }

dap.listeners.after.event_stopped.test = function(session, body)
  locals(session, body.threadId, function(found)
    table.insert(seen.stops, { reason = body.reason, locals = found })
    if #seen.stops < 2 then dap.step_over() else ends[plan.ending]() end
  end)
end
dap.listeners.after.event_terminated.test = function() seen.terminated = true end
dap.listeners.after.event_output.test = function(_, body)
  if vim.startswith(body.output, 'relay-client: ') then seen.output = (seen.output or '') .. body.output end
end

dofile(plan.snippet)
if plan.launch_json ~= '' then
  dap.configurations.python = {}
  require('dap.ext.vscode').load_launchjs(plan.launch_json, { debugpy = { 'python' } })
end
vim.cmd('edit ' .. vim.fn.fnameescape(plan.script))
vim.fn.cursor(plan.line, 1)
dap.set_breakpoint()
dap.run(dap.configurations.python[1])

-- The adapter's process ends the connection after a disconnect; nvim-dap then has no session.
local timer = vim.loop.new_timer()
timer:start(100, 100, vim.schedule_wrap(function()
  if #seen.stops == 2 and not dap.session() then
    timer:stop()
    finish()
  end
end))
